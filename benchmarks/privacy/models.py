"""Small models: the norm of the noise grows with the root of the number of parameters."""

from torch import Tensor, nn


class PooledMnist(nn.Sequential):
    """28 x 28 images in 10 classes: softmax regression on means of 2 x 2 pixels; 1,970 parameters."""

    def __init__(self) -> None:
        super().__init__(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(196, 10))


class EndingTagger(nn.Module):
    """20 words in 17 parts of speech each, by their endings alone: float32 [b, 20, 2] to [b, 17, 20].

    `benchmarks.learning.data.tagged_words` says what a word's numbers are. 34,816 parameters.
    """

    def __init__(self) -> None:
        super().__init__()
        self.endings = nn.Embedding(2048, 17)
        nn.init.zeros_(self.endings.weight)

    def forward(self, x: Tensor) -> Tensor:
        tags: Tensor = self.endings(x[..., 1].long())
        return tags.transpose(1, 2)
