"""Language models: they predict each next token of a text."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class LanguageModel(nn.Module):
    """A decoder-only transformer: token ids [b, t] to (features [b, t, width], head [vocabulary, width]).

    The loss `next_token` computes the logits from both, some positions at a time. `logits` has them at once.
    At its default size it has 21,238,272 parameters.

    Pre-norm blocks with RMSNorm, rotary positions and SwiGLU, as in H. Touvron et al., "LLaMA: open and
    efficient foundation language models", 2023, section 2.2. Ids are whole numbers, also as float32. A text
    has at most `context` tokens.
    """

    def __init__(
        self, vocabulary: int = 8192, width: int = 512, blocks: int = 4, heads: int = 8, context: int = 128
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, context) for _ in range(blocks))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                residual = name.endswith(("o.weight", "out.weight"))
                nn.init.normal_(parameter, 0.0, 0.02 / (2 * blocks) ** 0.5 if residual else 0.02)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.tokens(x.long())
        for block in self.blocks:
            hidden = block(hidden)
        return self.norm(hidden), self.head.weight

    def logits(self, x: Tensor) -> Tensor:
        """[b, t, vocabulary]: entry [:, i] is about token i + 1."""
        features, head = self(x)
        return functional.linear(features, head)


class Block(nn.Module):
    """Attention to earlier tokens, then a layer for each token: [b, t, width] to the same shape."""

    def __init__(self, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(width)
        self.attention = Attention(width, heads, context)
        self.mlp_norm = nn.RMSNorm(width)
        self.mlp = SwiGLU(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        output: Tensor = x + self.mlp(self.mlp_norm(x))
        return output


class Attention(nn.Module):
    """Causal self-attention with rotary positions: [b, t, width] to the same shape.

    J. Su et al., "RoFormer: enhanced transformer with rotary position embedding", 2021, equation (34), with
    the two numbers of a pair half a head apart.
    """

    def __init__(self, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        half = width // heads // 2
        angles = torch.outer(torch.arange(context), 10_000.0 ** (-torch.arange(half) / half)).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            layer(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v)
        )
        mixed = functional.scaled_dot_product_attention(self._turn(q), self._turn(k), v, is_causal=True)
        output: Tensor = self.o(mixed.transpose(1, 2).flatten(2))
        return output

    def _turn(self, x: Tensor) -> Tensor:
        """Rotate each pair of x [b, heads, t, size] by an angle that grows with its position."""
        first, second = x.chunk(2, dim=-1)
        turned = torch.cat((-second, first), -1)
        return x * self.get_buffer("cos")[: x.shape[2]] + turned * self.get_buffer("sin")[: x.shape[2]]


class SwiGLU(nn.Module):
    """N. Shazeer, "GLU variants improve transformer", 2020, equation (6): [..., width] to the same shape.

    The hidden layer has 8/3 of the width, in multiples of 64.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        hidden = -(-8 * width // 3 // 64) * 64
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.out = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.out(functional.silu(self.gate(x)) * self.up(x))
        return output
