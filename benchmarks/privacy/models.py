"""Small models: the norm of the noise grows with the root of the number of parameters."""

from torch import Tensor, nn


class PooledMnist(nn.Sequential):
    """28 x 28 images in 10 classes: softmax regression on means of 2 x 2 pixels; 1,970 parameters."""

    def __init__(self) -> None:
        super().__init__(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(196, 10))


class HashedTagger(nn.Module):
    """20 words in 49 classes each, from 1,000 buckets of words and their neighbours; 9,233 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, 8)
        self.near = nn.Conv1d(8, 16, 3, padding=1)
        self.head = nn.Linear(16, 49)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.near(self.words(x.long() % 1000).transpose(1, 2)).relu()
        output: Tensor = self.head(hidden.transpose(1, 2))
        return output.transpose(1, 2)
