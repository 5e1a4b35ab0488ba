"""Reference models. Each is named by import string, e.g. edgeflock.client.zoo:PaperCNN.

images.py       images and tables
sequences.py    words
language.py     a language model
policies.py     policies that act
"""

from edgeflock.client.zoo.images import (
    DigitsCNN,
    DigitsLinear,
    PaperCNN,
    PaperMLP,
    ResNetBN,
    ResNetGN,
    SpeechCNN,
    SvhnBN,
    SvhnCNN,
    SvhnGN,
    SvhnMLP,
    TabularMLP,  # fmt: skip
)
from edgeflock.client.zoo.language import LanguageModel
from edgeflock.client.zoo.policies import ActorCritic, PixelActorCritic
from edgeflock.client.zoo.sequences import WordTagger
