"""What a network of `transformers` multiplies and what it keeps for the backward pass, counted without memory for either.

Networks stand on PyTorch's `meta` device. Multiply-adds are half of what `torch.utils.flop_counter` counts in a forward
pass. What is kept is what autograd packs away in training mode, each memory once and weights left out; the count is of
two samples less that of one, so that what every batch has once, such as a mask, is left out too. Values are left out at
random as a GPU does it, with a mask of one byte a value. Attention is either written out (`eager`) or PyTorch's flash
attention, which knows no mask.
"""

import contextlib

import torch
import torch.nn.functional as functional
import transformers
import transformers.integrations.moe
from torch.utils.flop_counter import FlopCounterMode

# They look at values, and there are none: samples are neither packed nor filled up.
masks = transformers.masking_utils
masks.find_packed_sequence_indices = lambda positions: None
masks.fast_all = lambda mask: True
masks._ignore_bidirectional_mask_sdpa = lambda mask, length, window=None: window is None or length < window
# Its kernel wants 16 bits; what stands in for it keeps as much.
transformers.integrations.moe._can_use_grouped_mm = lambda *of: False
transformers.PreTrainedModel.warn_if_padding_and_no_attention_mask = lambda *of: None


def picture(config):
    """Height and width of a picture."""
    size = getattr(config, "image_size", None) or ((800, 1066) if config.model_type == "detr" else 224)
    if isinstance(size, dict):
        return size["height"], size["width"]
    return tuple(size) if isinstance(size, (list, tuple)) else (size, size)


def prepare(config):
    """Settles what a forward pass asks for and no weight depends on; no layer and no moment is left out at random."""
    for name in ("pad_token_id", "decoder_start_token_id"):
        if getattr(config, name, None) is None:
            setattr(config, name, 0)
    for name in ("layerdrop", "encoder_layerdrop", "decoder_layerdrop"):
        if getattr(config, name, None):
            setattr(config, name, 0.0)
    config.apply_spec_augment = False


def lengths(model, config):
    """Tokens of one sample to count with; 0 for what reads no text, or always as much."""
    if model.main_input_name != "input_ids" and not config.model_type == "whisper" or config.model_type in ("clip", "siglip"):
        return [0]
    if config.model_type in ("mamba", "rwkv"):
        return [32]  # Their states are computed one token after the other here.
    if config.model_type == "mamba2":
        return [config.chunk_size, 2 * config.chunk_size]  # Shorter samples are filled up.
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "max_target_positions")
    most = [getattr(config, name) for name in names if isinstance(getattr(config, name, None), int)]
    # Some types use two positions fewer than they have.
    longer = min([1024] + [most - 2 for most in most])
    return [128, longer] if longer > 128 else [longer]


def whole(*shape):
    return torch.zeros(shape, dtype=torch.long, device="meta")


def entering(model, config, samples, sequence):
    """What enters `model`: tokens, pictures or sounds, and what is to be answered where it takes that."""
    name, kind = type(model).__name__, config.model_type
    values = {}
    if kind in ("clip", "siglip") and not name.endswith("ForImageClassification"):
        sight = config.vision_config
        values["pixel_values"] = torch.empty(samples, sight.num_channels, *picture(sight), device="meta")
        values["input_ids"] = whole(samples, config.text_config.max_position_embeddings)
        return values
    sight = getattr(config, "vision_config", config) if kind in ("clip", "siglip") else config
    if model.main_input_name == "pixel_values":
        values["pixel_values"] = torch.empty(samples, getattr(sight, "num_channels", 3), *picture(sight), device="meta")
        if name.endswith("ForImageClassification"):
            values["labels"] = whole(samples)
        return values
    if model.main_input_name == "input_features" and not name.endswith("ForCausalLM"):
        values["input_features"] = torch.empty(samples, config.num_mel_bins, 2 * config.max_source_positions, device="meta")
        if not name.endswith("ForAudioClassification"):
            values["decoder_input_ids"] = whole(samples, sequence)
        return values
    if model.main_input_name == "input_values":
        return {"input_values": torch.empty(samples, 160_000, device="meta")}
    values["input_ids"] = whole(samples, sequence)
    answers = name.endswith(("ForConditionalGeneration", "MTModel")) or name.endswith("Model") and kind not in ("t5",)
    if getattr(config, "is_encoder_decoder", False) and not name.endswith(("EncoderModel", "ForCausalLM")):
        if answers or name.endswith("Model"):
            values["decoder_input_ids"] = whole(samples, -(-sequence // 4))
    if name.endswith(("ForCausalLM", "LMHeadModel", "ForMaskedLM")):
        values["labels"] = whole(samples, sequence)
    elif name.endswith("ForConditionalGeneration") or name.endswith("MTModel"):
        values["labels"] = whole(samples, -(-sequence // 4))
    elif name.endswith("ForQuestionAnswering"):
        values["start_positions"] = values["end_positions"] = whole(samples)
    if hasattr(config, "use_cache"):
        values["use_cache"] = False
    return values


def multiply_adds(model, config, sequence):
    """Of one sample, beside what every batch has once."""
    model.eval()
    counts = []
    for samples in (1, 2):
        values = entering(model, config, samples, sequence)
        with FlopCounterMode(display=False) as counter:
            model(**values)
        counts.append(counter.get_total_flops() // 2)
    return counts[1] - counts[0]


def left_out(values, p=0.5, training=True, inplace=False):
    return torch.native_dropout(values, p, True)[0] if training and p > 0 else values


def flash(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    return torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, scale=scale)[0]


class Finite:
    """Stands for values of which it is asked whether all are finite."""

    def all(self):
        return True

    any = all


# It is asked while training; there are no values.
torch.isfinite = lambda values: Finite()


@contextlib.contextmanager
def replaced(**functions):
    before = {name: getattr(functional, name) for name in functions}
    for name, function in functions.items():
        setattr(functional, name, function)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(functional, name, function)


def bytes_kept(model, config, samples, sequence):
    values = entering(model, config, samples, sequence)
    own = {weight.untyped_storage()._cdata for weight in [*model.parameters(), *model.buffers()]}
    seen, kept = {}, []

    def pack(tensor):
        memory = tensor.untyped_storage()
        if memory._cdata not in own:
            seen[memory._cdata] = memory.nbytes()
            kept.append(memory)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        answer = model(**values)
    del answer
    return sum(seen.values())


def kept(model, config, sequence, fused):
    """Bytes a sample in 32-bit floats, with PyTorch's fused attention or without."""
    model.train()
    functions = {"dropout": left_out}
    if fused:
        functions["scaled_dot_product_attention"] = flash
    with replaced(**functions):
        one, two = (bytes_kept(model, config, samples, sequence) for samples in (2, 3))
    return two - one
