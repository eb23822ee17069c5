"""Generation: a program of one decode step becomes a program that also samples, and is run token by token.

`composed` makes that program: greedy choice, or top-k and temperature with a random number from a seed, all in int32
ops. So its digest commits to how tokens are chosen, its receipts to the prompt and the seed, and a dispute about a
token ends at one step, as about any other element. `generate` runs it on a prompt.
"""

from __future__ import annotations

from cvm.generation.archive import LanguageModel, load_model
from cvm.generation.composition import composed
from cvm.generation.decoding import Decoder, decoder_of
from cvm.generation.run import Generation, Generator, Request, generate
from cvm.generation.settings import SEEDS, Sampling
from cvm.generation.vocabulary import Vocabulary

__all__ = [
    "SEEDS",
    "Decoder",
    "Generation",
    "Generator",
    "LanguageModel",
    "Request",
    "Sampling",
    "Vocabulary",
    "composed",
    "decoder_of",
    "generate",
    "load_model",
]
