"""Models of sequences and words."""

import torch
from torch import Tensor, nn


class LSTMTagger(nn.Module):
    """20 steps of 32 features, a class of 17 for each: float32 [b, 20, 32] to [b, 17, 20].

    One LSTM of 64 and a dense layer; 26,193 parameters. Targets are [b, 20].
    """

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(32, 64, batch_first=True)
        self.head = nn.Linear(64, 17)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.lstm(x)
        output: Tensor = self.head(hidden)
        return output.transpose(1, 2)


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


class TransformerBlock(nn.Module):
    """16 tokens of 32 features in 10 classes; 13,546 parameters.

    A learned position for each token, one block with four heads and 128 hidden units, the tokens' mean and a
    dense layer. No dropout.
    """

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(0.02 * torch.randn(16, 32))
        self.block = nn.TransformerEncoderLayer(32, 4, 128, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(self.block(x + self.position).mean(1))
        return output
