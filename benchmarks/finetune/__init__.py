"""Fine-tuning of a small language model by eight devices, against one machine.

texts.py        texts from Debian's packages
tokens.py       a vocabulary of them, and their token ids
pretrain.py     trains the zoo's language model on general English
"""
