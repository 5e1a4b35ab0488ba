"""A model of words."""

from torch import Tensor, nn


class WordTagger(nn.Module):
    """20 words, one of 23,042 each, in 49 classes for each: float32 [b, 20] to [b, 49, 20].

    224 numbers a word, one LSTM of 256 and a dense layer; 5,667,569 parameters. Targets are [b, 20].
    """

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(23_042, 224)
        self.lstm = nn.LSTM(224, 256, batch_first=True)
        self.head = nn.Linear(256, 49)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.lstm(self.words(x.long()))
        output: Tensor = self.head(hidden)
        return output.transpose(1, 2)
