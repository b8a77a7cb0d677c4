"""The loader of texts."""
from .. import _door
from .._loader import Loader
from .checks import U32, whole
from .opening import opening
from .ranks import share_of, warn_of_ranks


class TextLoader(Loader):
    """Batches of token ids: documents packed into rows for the next token, or a text per row.

    A batch is a dict of tensors of whole numbers, rows × tokens:

    input_ids       token ids, each less than `vocabulary`
    targets         what is to be predicted, and -100 where nothing is, as `cross_entropy` ignores: for the goal "next" the
                    token after each (they are shifted already), for "masked" the ids that were masked, for "class" one
                    class per row
    attention_mask  1 at tokens and 0 at padding; left out where there is no padding
    position_ids    positions from the start of each document; only with documents="apart"

    Order, resume, `set_epoch`, ranks and errors are those of `gradus.Loader`. Where the rows of a batch are fewer than the
    ranks, a rank without one gets a row of another's.

    uri          a .txt, .csv or .jsonl file, each also with .gz, a folder that `gradus data pack` has written, raw token ids
                 (.u16, .u32), or an address of any of these
    batch        rows in a batch, of all ranks together
    length       tokens of a row; longer texts are cut, or packed into several rows for the goal "next"
    rank, world  which part of each batch comes here; by default all of it, with a warning where several ranks train
    goal         "next", "masked" or "class"
    columns      columns or keys that hold the text, joined by a space
    label        column or key of the class
    pair         column or key of a second text
    tokenizer    a `tokenizer.json` of the tokenizers library; without it one is trained on the training texts, of at most
                 `vocabulary` tokens
    documents    "together": tokens attend to all before them in their row; "apart": with `position_ids` that start at each
                 document

    Tokens are kept below `cache`, for other ranks and later runs on the same texts.
    """

    def __init__(
        self, uri, batch, length=128, rank=None, world=None, *, goal="next", columns=("text",), label=None, pair=None,
        tokenizer=None, vocabulary=8000, documents="together", seed=0, part="train", split=(1.0, 0.0, 0.0), cache=None,
        tensors=None, device=None, pin_memory=False,
    ):
        columns = [columns] if isinstance(columns, str) else list(columns)
        uri, shares, cache, environment = opening(uri, split, cache)
        batch, seed = whole("batch", batch, 1), whole("seed", seed)
        length, vocabulary = whole("length", length, most=U32), whole("vocabulary", vocabulary, most=U32)
        own_rank, own_world = share_of(rank, world)
        inner = _door.TextLoader(
            uri, batch, rank=own_rank, world=own_world, seed=seed, goal=goal, columns=columns, label=label, pair=pair,
            length=length, tokenizer=None if tokenizer is None else str(tokenizer), vocabulary=vocabulary,
            documents=documents, part=part, split=shares, cache=cache, environment=environment,
        )
        warn_of_ranks("TextLoader", rank, world, inner)
        known = {
            "seed": seed, "goal": goal, "length": length, "documents": documents, "split": shares or "folders", "part": part,
        }
        self._begin(inner, batch, known, tensors, device, pin_memory)

    @property
    def vocabulary(self):
        """The size of the vocabulary."""
        return self._inner.vocabulary

    @property
    def tokenizer(self):
        """The tokenizer as the text of a `tokenizer.json`."""
        return self._inner.tokenizer

    def _made(self, values):
        (named,) = values
        return {name: self._tensor(tensor) for name, tensor in named}
