"""Models of images and of tables."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


class _Layers(nn.Module):
    """Layers one after the other, under the name `layers`."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layers(x)
        return output


class _ImageLayers(_Layers):
    """Layers on images with their channels last: torch's pooling on a CPU is then several times faster."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(memory_format=torch.channels_last))


class DigitsCNN(_Layers):
    """8 x 8 images in 10 classes: two 3 x 3 convolutions, pool, two dense layers; 38,282 parameters."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(512, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )


class DigitsLinear(nn.Sequential):
    """8 x 8 images in 10 classes by softmax regression; 650 parameters.

    For fleets whose gradients do not matter: a step on a thousand samples takes a millisecond.
    """

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 10))


class PaperMLP(_Layers):
    """28 x 28 images in 10 classes: two hidden layers of 128; 118,282 parameters.

    AdaComp's MLP (section V d) is described in its technical report only; this one is of the usual size.
    """

    def __init__(self) -> None:
        super().__init__(
            nn.Flatten(),
            nn.Linear(784, 128),
            nn.ReLU(),
            nn.Linear(128, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )


class TabularMLP(_Layers):
    """16 features in 2 classes: one hidden layer of 32; 610 parameters.

    For streams of sensors: 6 features with window=K&lags=4, 5 with window=K&lags=6 (shared/data/recent.py).
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))


class SpeechCNN(_ImageLayers):
    """64 x 40 log-mel spectrograms in 10 classes, for spoken digits; 333,194 parameters."""

    def __init__(self) -> None:
        super().__init__(*_pooled_twice(16, 32, 5120, 64))


class PaperCNN(_ImageLayers):
    """AdaComp's CNN for 28 x 28 images in 10 classes, 211,690 parameters (section V b).

    Initialised as its TensorFlow ancestor: weights truncated normal with deviation 0.1, biases 0.1.
    """

    def __init__(self) -> None:
        super().__init__(*_pooled_twice(32, 32, 1568, 128))
        for name, parameter in self.named_parameters():
            if name.endswith("weight"):
                nn.init.trunc_normal_(parameter, std=0.1, a=-0.2, b=0.2)
            else:
                nn.init.constant_(parameter, 0.1)


def _pooled_twice(first: int, second: int, flat: int, hidden: int) -> list[nn.Module]:
    """Two convolutions of so many channels, each pooled 2 x 2, then `flat` to `hidden` to 10."""
    return [
        nn.Conv2d(1, first, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),  # after the pool: the same function on a quarter of the values
        nn.Conv2d(first, second, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(flat, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 10),
    ]


class SvhnCNN(_ImageLayers):
    """32 x 32 colour images in 10 classes, house numbers for one; 40,450 parameters.

    Two 5 x 5 convolutions of 6 and 16 channels, each pooled 2 x 2 (32 to 16, 12 to 6), then 576 to 64 to 10.
    The first is padded by 2, the second is not.
    """

    def __init__(self) -> None:
        super().__init__(*_svhn(lambda channels: []))


class SvhnMLP(_Layers):
    """32 x 32 colour images in 10 classes by seven dense layers; 3,465,514 parameters.

    3,072 to 1,000 to 88 to four times 302 to 10, with ReLU. The MLP of D. Svoboda and A. Aggarwal,
    "Communication efficient distributed SGD", has the same numbers of parameters and layers; its widths are
    not published. Weights have He initialization for ReLU: with torch's default, hundreds of steps learn
    nothing.
    """

    def __init__(self) -> None:
        widths = (3 * 32 * 32, 1000, 88, 302, 302, 302, 302)
        hidden = [
            layer for pair in zip(widths, widths[1:], strict=False) for layer in (nn.Linear(*pair), nn.ReLU())
        ]
        super().__init__(nn.Flatten(), *hidden, nn.Linear(302, 10))
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(layer.bias)


class SvhnBN(_ImageLayers):
    """SvhnCNN with BatchNorm of the images and after each pool; 40,500 parameters, 50 running statistics."""

    def __init__(self) -> None:
        super().__init__(*_svhn(lambda channels: [nn.BatchNorm2d(channels)]))


class SvhnGN(_ImageLayers):
    """SvhnCNN with GroupNorm, one group, after each pool; 40,494 parameters.

    Not of the images: torch 2.13 crashes in the gradient if GroupNorm is the first layer of such images.
    """

    def __init__(self) -> None:
        super().__init__(*_svhn(lambda channels: [nn.GroupNorm(1, channels)] if channels > 3 else []))


def _svhn(norm: Callable[[int], list[nn.Module]]) -> list[nn.Module]:
    return [
        *norm(3),
        nn.Conv2d(3, 6, 5, padding=2),
        nn.MaxPool2d(2),
        *norm(6),
        nn.ReLU(),
        nn.Conv2d(6, 16, 5),
        nn.MaxPool2d(2),
        *norm(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(576, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    ]


class _Block(nn.Module):
    """A basic block: two 3 x 3 convolutions and a shortcut, which is 1 x 1 where the shape changes."""

    def __init__(self, channels: int, out: int, stride: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, padding=1, bias=False),
            norm(out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, padding=1, bias=False),
            norm(out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), norm(out))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layers(x) + self.shortcut(x))


class _ResNet(nn.Sequential):
    """Three stages of 16, 32 and 64 channels, one basic block each, for 32 x 32 colour images in 10 classes.

    After K. He, X. Zhang, S. Ren and J. Sun, "Deep residual learning for image recognition", CVPR 2016,
    section 4.2, at its smallest, with projections for shortcuts.
    """

    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__(
            nn.Conv2d(3, 16, 3, padding=1, bias=False),
            norm(16),
            nn.ReLU(),
            _Block(16, 16, 1, norm),
            _Block(16, 32, 2, norm),
            _Block(32, 64, 2, norm),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(64, 10),
        )

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = super().forward(x.to(memory_format=torch.channels_last))  # type: ignore[no-untyped-call]
        return output


class ResNetGN(_ResNet):
    """The ResNet with GroupNorm, eight groups each; 78,042 parameters."""

    def __init__(self) -> None:
        super().__init__(lambda channels: nn.GroupNorm(8, channels))


class ResNetBN(_ResNet):
    """The ResNet with BatchNorm; 78,042 parameters and 672 running statistics."""

    def __init__(self) -> None:
        super().__init__(nn.BatchNorm2d)
