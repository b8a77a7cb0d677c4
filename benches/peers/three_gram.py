"""A 3-gram model of the same words as a baseline for a GPT that was trained on a plain text.

    three_gram.py TEXT EXPORT [TRAIN VALIDATION TEST]

TEXT is the file that was trained on, EXPORT the run's export folder with `tokenizer.json` and `model.json`; the shares
are those of the job's `split`. The text is divided by lines as the job divided it, the 3-grams are counted on the
training part and smoothed by interpolated Kneser-Ney (Kneser and Ney 1995) with the discount that is best on the
validation part. Prints the perplexity of both on the test part as one line of JSON.
"""

import json
import math
import pathlib
import re
import sys
from collections import Counter

from tokenizers import Tokenizer


def parts(lines, shares):
    """By the method of largest remainders, in order."""
    quotas = [share * len(lines) for share in shares]
    counts = [int(quota) for quota in quotas]
    for place in sorted(range(3), key=lambda at: counts[at] - quotas[at])[: len(lines) - sum(counts)]:
        counts[place] += 1
    ends = [counts[0], counts[0] + counts[1]]
    return lines[: ends[0]], lines[ends[0] : ends[1]], lines[ends[1] :]


class Trigrams:
    def __init__(self, tokens, vocabulary):
        self.vocabulary = vocabulary
        self.three = Counter(zip(tokens, tokens[1:], tokens[2:]))
        self.pairs = Counter()
        self.follow_pair = Counter()
        # How many different words stand before, which is what Kneser and Ney count lower orders by.
        self.two = Counter()
        for (a, b, c), count in self.three.items():
            self.pairs[a, b] += count
            self.follow_pair[a, b] += 1
            self.two[b, c] += 1
        self.middle, self.follow_middle, self.one = Counter(), Counter(), Counter()
        for (b, c), count in self.two.items():
            self.middle[b] += count
            self.follow_middle[b] += 1
            self.one[c] += 1
        self.total = sum(self.one.values())

    def share(self, a, b, c, discount):
        one = max(self.one[c] - discount, 0) / self.total + discount * len(self.one) / self.total / self.vocabulary
        two = one
        if self.middle[b]:
            kept = discount * self.follow_middle[b] / self.middle[b]
            two = max(self.two[b, c] - discount, 0) / self.middle[b] + kept * one
        if not self.pairs[a, b]:
            return two
        kept = discount * self.follow_pair[a, b] / self.pairs[a, b]
        return max(self.three[a, b, c] - discount, 0) / self.pairs[a, b] + kept * two

    def perplexity(self, tokens, discount):
        grams = list(zip(tokens, tokens[1:], tokens[2:]))
        return math.exp(-sum(math.log(self.share(*gram, discount)) for gram in grams) / len(grams))


text, export, *shares = sys.argv[1:]
shares = [float(share) for share in shares] or [0.8, 0.1, 0.1]
tokenizer = Tokenizer.from_file(f"{export}/tokenizer.json")
# As the job reads it: a line ends with a line feed and nothing else.
lines = re.findall(r"[^\n]*\n|[^\n]+", pathlib.Path(text).read_bytes().decode())
train, validation, test = (
    [token for line in part for token in tokenizer.encode(line, add_special_tokens=False).ids]
    for part in parts(lines, shares)
)
model = Trigrams(train, tokenizer.get_vocab_size())
discount = min((step / 20 for step in range(8, 20)), key=lambda value: model.perplexity(validation, value))
card = json.loads(pathlib.Path(export, "model.json").read_text())
print(
    json.dumps(
        {
            "words": [len(train), len(validation), len(test)],
            "discount": discount,
            "three_gram": round(model.perplexity(test, discount), 2),
            "model": round(math.exp(card["test_loss"]), 2),
        }
    )
)
