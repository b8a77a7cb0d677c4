"""Exports networks by PyTorch's newer ONNX exporter (`torch.onnx.export(dynamo=True)`), beside its own counts.

    exported.py FOLDER [NAME…]

For each network an ONNX file is written to FOLDER, and one line of JSON is printed: the file, the weights (shared ones once),
multiply-adds of a sample (`torch.utils.flop_counter`, half of what it says, with attention that it counts) and the bytes
that a sample keeps for the backward pass (storages that autograd saves in training mode without dropout, weights and
buffers apart, with a cross-entropy over what looks like scores).
Weights are random. A line with `error` is a network that PyTorch does not export.
"""

import gc
import json
import os
import pathlib
import sys
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")

import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
import transformers
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import timm

torch.backends.mha.set_fastpath_enabled(False)
transformers.logging.set_verbosity_error()


def picture(side=224, channels=3):
    return lambda batch: (torch.randn(batch, channels, side, side),)


def words(length=48, vocabulary=1000, count=1):
    return lambda batch: tuple(torch.randint(3, vocabulary, (batch, length)) for _ in range(count))


class Keys(nn.Module):
    """A network of `transformers` that is given its inputs by name and gives its first output."""

    def __init__(self, network, names):
        super().__init__()
        self.network, self.names = network, names

    def forward(self, *values):
        return self.network(**dict(zip(self.names, values)), return_dict=False)[0]


def hub(kind, network, names=("input_ids",), inputs=None, **figures):
    def made():
        config = transformers.AutoConfig.for_model(kind, **figures)
        for part in (config, getattr(config, "text_config", None)):
            if part is not None:
                part.use_cache = False
        # Experts that each token runs through by index: the other ways do not export.
        config._experts_implementation = "batched_mm"
        return Keys(getattr(transformers, network)(config), names)

    return made, inputs or words()


def vision(name, side=224, **options):
    return (lambda: torchvision.models.get_model(name, weights=None, **options)), picture(side)


def image(name, side=224, **options):
    return (lambda: timm.create_model(name, pretrained=False, **options)), picture(side)


class First(nn.Module):
    """The first of a segmentation network's outputs."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, values):
        return self.network(values)["out"]


def segmentation(name, side=224):
    build = lambda: torchvision.models.get_model(name, weights=None, weights_backbone=None, aux_loss=False)
    return (lambda: First(build())), picture(side)


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.table = nn.Embedding(500, 64)
        self.layers = kind(64, 96, num_layers=2, batch_first=True, **options)
        self.scores = nn.Linear(96 * (2 if options.get("bidirectional") else 1), 500)

    def forward(self, tokens):
        return self.scores(self.layers(self.table(tokens))[0])


def double(inside, outside):
    layers = []
    for width in (inside, outside):
        layers += [nn.Conv2d(width, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    def __init__(self, widths=(24, 48, 96, 192)):
        super().__init__()
        self.down = nn.ModuleList(double(one, other) for one, other in zip((3, *widths), widths))
        pairs = list(zip(widths[::-1], widths[-2::-1]))
        self.up = nn.ModuleList(nn.ConvTranspose2d(one, other, 2, stride=2) for one, other in pairs)
        self.join = nn.ModuleList(double(one, other) for one, other in pairs)
        self.last = nn.Conv2d(widths[0], 5, 1)

    def forward(self, values):
        kept = []
        for number, block in enumerate(self.down):
            values = block(F.max_pool2d(values, 2) if number else values)
            kept.append(values)
        for up, join, beside in zip(self.up, self.join, kept[-2::-1]):
            values = join(torch.cat([up(values), beside], 1))
        return self.last(values)


class Sums(nn.Module):
    """Attention by `einsum`, with heads as a dimension of the weights."""

    def __init__(self, width=96, heads=6, inner=16):
        super().__init__()
        self.table = nn.Embedding(800, width)
        self.into = nn.Parameter(torch.randn(3, width, heads, inner))
        self.out = nn.Parameter(torch.randn(heads, inner, width))
        self.norm = nn.LayerNorm(width)
        self.scores = nn.Linear(width, 800, bias=False)
        self.scores.weight = self.table.weight

    def forward(self, tokens):
        values = self.table(tokens)
        query, key, value = (torch.einsum("btd,dhk->bthk", self.norm(values), into) for into in self.into)
        weights = (torch.einsum("bqhk,bshk->bhqs", query, key) / 4.0).softmax(-1)
        mixed = torch.einsum("bhqs,bshk->bqhk", weights, value)
        return self.scores(values + torch.einsum("bqhk,hkd->bqd", mixed, self.out))


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(600, 64)
        self.network = nn.Transformer(64, 4, 2, 2, 128, batch_first=True)
        self.scores = nn.Linear(64, 600)

    def forward(self, one, other):
        mask = nn.Transformer.generate_square_subsequent_mask(other.shape[1])
        return self.scores(self.network(self.table(one), self.table(other), tgt_mask=mask, tgt_is_causal=False))


class Encoder(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.table = nn.Embedding(600, 64)
        self.places = nn.Parameter(torch.randn(1, 48, 64))
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 256, batch_first=True, **options), 4)
        self.scores = nn.Linear(64, 10)

    def forward(self, tokens):
        return self.scores(self.layers(self.table(tokens) + self.places).mean(1))


class Bags(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(5000, 64, mode="mean")
        self.tower = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, tokens):
        return self.tower(self.bag(tokens))


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        layers, width = [], 256
        for outside in (128, 64, 32):
            layers += [nn.ConvTranspose2d(width, outside, 4, 2, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU()]
            width = outside
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh())

    def forward(self, values):
        return self.layers(values)


def plain(norm=True, groups=1, act=nn.ReLU):
    layers, width = [], 3
    for number, outside in enumerate((32, 64, 128)):
        layers.append(nn.Conv2d(width, outside, 3, stride=2, padding=1, groups=groups if number else 1, bias=not norm))
        layers += [nn.BatchNorm2d(outside), act()] if norm else [act()]
        width = outside
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


class Separated(nn.Module):
    """One-dimensional convolutions in groups, with gates and a normalisation by groups."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(40, 128, 5, padding=2)
        self.middle = nn.ModuleList(nn.Conv1d(128, 256, 3, padding=2**k, dilation=2**k, groups=4) for k in range(4))
        self.norms = nn.ModuleList(nn.GroupNorm(8, 128) for _ in range(4))
        self.last = nn.Conv1d(128, 30, 1)

    def forward(self, values):
        values = self.first(values)
        for layer, norm in zip(self.middle, self.norms):
            values = values + norm(F.glu(layer(values), 1))
        return self.last(values)


class Cells(nn.Module):
    """A decoder step by step: a cell that is called in a loop."""

    def __init__(self):
        super().__init__()
        self.table, self.cell, self.scores = nn.Embedding(300, 48), nn.LSTMCell(48, 64), nn.Linear(64, 300)

    def forward(self, tokens):
        hidden = carried = torch.zeros(tokens.shape[0], 64)
        steps = []
        for step in range(8):
            hidden, carried = self.cell(self.table(tokens[:, step]), (hidden, carried))
            steps.append(self.scores(hidden))
        return torch.stack(steps, 1)


small = dict(hidden_size=128, num_hidden_layers=3, num_attention_heads=4, intermediate_size=352, vocab_size=1000)
decoder = dict(small, num_key_value_heads=2, max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2)
sound = lambda length, *shape: lambda batch: (torch.randn(batch, *shape, length),)
two = words(count=2)

# Networks by name: how they are made, and their inputs.
NETWORKS = {
    "resnet18": vision("resnet18"),
    "densenet121": vision("densenet121"),
    "efficientnet_b0": vision("efficientnet_b0"),
    "mobilenet_v3_large": vision("mobilenet_v3_large"),
    "convnext_tiny": vision("convnext_tiny"),
    "vit_b_16": vision("vit_b_16"),
    "swin_t": vision("swin_t"),
    "swin_v2_t": vision("swin_v2_t", 256),
    "googlenet": vision("googlenet", aux_logits=False, init_weights=False),
    "fcn_resnet50": segmentation("fcn_resnet50"),
    "shufflenet_v2_x1_0": vision("shufflenet_v2_x1_0"),
    "nf_resnet50": image("nf_resnet50"),
    "beit": image("beit_base_patch16_224", depth=3),
    "eva02": image("eva02_tiny_patch14_224"),
    "coatnet": image("coatnet_nano_rw_224"),
    "poolformer": image("poolformer_s12"),
    "caformer": image("caformer_s18", drop_path_rate=0.0),
    "hrnet": image("hrnet_w18_small"),
    "xcit": image("xcit_nano_12_p16_224"),
    "mobilevit": image("mobilevit_xs", 256),
    "tresnet": image("tresnet_m"),
    "repvgg": image("repvgg_a2"),
    "gpt2": hub("gpt2", "GPT2LMHeadModel"),
    "gpt2_small": hub("gpt2", "GPT2LMHeadModel", n_embd=128, n_layer=3, n_head=4, vocab_size=1000),
    "bert": hub("bert", "BertForMaskedLM", **small),
    "deberta_v2": hub("deberta-v2", "DebertaV2ForSequenceClassification", **small, relative_attention=True, position_buckets=32, norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"]),
    "t5": hub("t5", "T5ForConditionalGeneration", ("input_ids", "decoder_input_ids"), two, d_model=128, d_ff=256, d_kv=32, num_layers=3, num_heads=4, vocab_size=1000),
    "llama": hub("llama", "LlamaForCausalLM", **decoder),
    "mixtral": hub("mixtral", "MixtralForCausalLM", **decoder, num_local_experts=4),
    "gemma2": hub("gemma2", "Gemma2ForCausalLM", **decoder, head_dim=32),
    "opt": hub("opt", "OPTForCausalLM", hidden_size=128, num_hidden_layers=3, num_attention_heads=4, ffn_dim=512, vocab_size=1000, word_embed_proj_dim=128),
    "falcon": hub("falcon", "FalconForCausalLM", hidden_size=128, num_hidden_layers=3, num_attention_heads=4, vocab_size=1000),
    "whisper": hub("whisper", "WhisperForConditionalGeneration", ("input_features", "decoder_input_ids"), lambda batch: (torch.randn(batch, 80, 3000), torch.randint(3, 900, (batch, 16))), d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=256, decoder_ffn_dim=256, vocab_size=1000, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1),
    "segformer": hub("segformer", "SegformerForSemanticSegmentation", ("pixel_values",), picture(256)),
    "mamba": hub("mamba", "MambaForCausalLM", ("input_ids",), words(8), hidden_size=64, num_hidden_layers=2, vocab_size=1000),
    "vit_hub": hub("vit", "ViTForImageClassification", ("pixel_values",), picture(), num_hidden_layers=3),
    "lstm": ((lambda: Recurrent(nn.LSTM, bidirectional=True)), words(40, 500)),
    "unet": (UNet, picture(128)),
    "sums": (Sums, words(40, 800)),
    "pair": (Pair, words(32, 600, 2)),
    "generator": (Generator, lambda batch: (torch.randn(batch, 256, 4, 4),)),
    "plain": (plain, picture(64)),
    "cells": (Cells, words(8, 300)),
    # Not looked at until the others were read.
    "resnext50": vision("resnext50_32x4d"),
    "wide_resnet50": vision("wide_resnet50_2"),
    "mobilenet_v2": vision("mobilenet_v2"),
    "regnet_y_400mf": vision("regnet_y_400mf"),
    "maxvit_t": vision("maxvit_t"),
    "inception_v3": vision("inception_v3", 299, aux_logits=False, init_weights=False),
    "vgg11_bn": vision("vgg11_bn"),
    "squeezenet1_1": vision("squeezenet1_1"),
    "mnasnet1_0": vision("mnasnet1_0"),
    "deeplabv3": segmentation("deeplabv3_mobilenet_v3_large"),
    "lraspp": ((lambda: First(torchvision.models.get_model("lraspp_mobilenet_v3_large", weights=None, weights_backbone=None))), picture()),
    "r3d_18": ((lambda: torchvision.models.get_model("r3d_18", weights=None)), lambda batch: (torch.randn(batch, 3, 8, 112, 112),)),
    "deit3": image("deit3_small_patch16_224", depth=4),
    "mixer": image("mixer_s32_224"),
    "resmlp": image("resmlp_12_224"),
    "convformer": image("convformer_s18", drop_path_rate=0.0),
    "dla": image("dla34"),
    "ghostnet": image("ghostnetv2_100"),
    "levit": image("levit_128"),
    "nfnet": image("dm_nfnet_f0", 192),
    "cait": image("cait_xxs24_224"),
    "efficientformer": image("efficientformer_l1"),
    "pvt": image("pvt_v2_b0"),
    "volo": image("volo_d1_224"),
    "edgenext": image("edgenext_x_small", 256),
    "mobilevitv2": image("mobilevitv2_075", 256),
    "twins": image("twins_pcpvt_small"),
    "res2net": image("res2net50_26w_4s"),
    "skresnet": image("skresnet18"),
    "resnest": image("resnest14d"),
    "sequencer": image("sequencer2d_s"),
    "fastvit": image("fastvit_t8", 256),
    "hiera": image("hiera_tiny_224"),
    "roberta": hub("roberta", "RobertaForSequenceClassification", **small),
    "distilbert": hub("distilbert", "DistilBertForQuestionAnswering", dim=128, n_layers=3, n_heads=4, hidden_dim=512, vocab_size=1000),
    "albert": hub("albert", "AlbertForMaskedLM", **dict(small, embedding_size=64)),
    "electra": hub("electra", "ElectraForPreTraining", **dict(small, embedding_size=64)),
    "bart": hub("bart", "BartForConditionalGeneration", ("input_ids", "decoder_input_ids"), two, d_model=128, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=256, decoder_ffn_dim=256, vocab_size=1000),
    "mistral": hub("mistral", "MistralForCausalLM", **decoder),
    "qwen2": hub("qwen2", "Qwen2ForCausalLM", **decoder, tie_word_embeddings=True),
    "qwen3": hub("qwen3", "Qwen3ForCausalLM", **decoder, head_dim=48),
    "qwen3_moe": hub("qwen3_moe", "Qwen3MoeForCausalLM", **decoder, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=96, head_dim=32),
    "phi": hub("phi", "PhiForCausalLM", **{key: value for key, value in decoder.items() if key != "num_key_value_heads"}),
    "phi3": hub("phi3", "Phi3ForCausalLM", **decoder),
    "bloom": hub("bloom", "BloomForCausalLM", hidden_size=128, n_layer=3, n_head=4, vocab_size=1000),
    "gpt_neox": hub("gpt_neox", "GPTNeoXForCausalLM", **small),
    "gptj": hub("gptj", "GPTJForCausalLM", n_embd=128, n_layer=3, n_head=4, vocab_size=1000, rotary_dim=16),
    "wav2vec2": hub("wav2vec2", "Wav2Vec2ForCTC", ("input_values",), sound(16000), hidden_size=128, num_hidden_layers=3, num_attention_heads=4, intermediate_size=256),
    "clip": hub("clip", "CLIPModel", ("input_ids", "pixel_values"), lambda batch: (torch.randint(3, 900, (batch, 20)), torch.randn(batch, 3, 224, 224))),
    "deberta": hub("deberta", "DebertaForMaskedLM", **small, relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=64),
    "mpt": hub("mpt", "MptForCausalLM", d_model=128, n_layers=3, n_heads=4, vocab_size=1000),
    "modernbert": hub("modernbert", "ModernBertForMaskedLM", **dict(small, pad_token_id=0, cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2)),
    "olmo2": hub("olmo2", "Olmo2ForCausalLM", **decoder),
    "stablelm": hub("stablelm", "StableLmForCausalLM", **decoder),
    "gemma3": hub("gemma3_text", "Gemma3ForCausalLM", **decoder, head_dim=32),
    "dinov2": hub("dinov2", "Dinov2ForImageClassification", ("pixel_values",), picture(), num_hidden_layers=3),
    "yolos": hub("yolos", "YolosForObjectDetection", ("pixel_values",), picture(256), num_hidden_layers=3, hidden_size=192, num_attention_heads=3, intermediate_size=768, image_size=[256, 256]),
    "convnextv2": hub("convnextv2", "ConvNextV2ForImageClassification", ("pixel_values",), picture()),
    "xlnet": hub("xlnet", "XLNetForSequenceClassification", d_model=128, n_layer=3, n_head=4, d_inner=256, vocab_size=1000),
    "gru": ((lambda: Recurrent(nn.GRU)), words(40, 500)),
    "bags": (Bags, words(12, 5000)),
    "separated": (Separated, lambda batch: (torch.randn(batch, 40, 200),)),
    "encoder": ((lambda: Encoder(activation="gelu", norm_first=True)), words(48, 600)),
    "grouped": ((lambda: plain(groups=4, act=nn.SiLU)), picture(64)),
}

# Further files of networks above: what is done to the network, and options of the exporter.
half = lambda kind: dict(cast=kind)
batched = lambda count=1: dict(dynamic=count)
AGAIN = {
    "resnet18-train": ("resnet18", dict(train=True)),
    "plain-train": ("plain", dict(train=True)),
    "llama-bf16": ("llama", half(torch.bfloat16)),
    "gpt2_small-fp16": ("gpt2_small", half(torch.float16)),
    "bert-dynamic": ("bert", batched()),
    "resnet18-dynamic": ("resnet18", batched()),
    "llama-opset23": ("llama", dict(opset=23)),
    "vit_hub-opset21": ("vit_hub", dict(opset=21)),
    "bert-int8": ("bert", dict(few=True)),
    "resnet18-batch8": ("resnet18", dict(batch=8)),
    "vit_b_16-inside": ("vit_b_16", dict(external=False)),
    "plain-unoptimised": ("plain", dict(optimize=False)),
    "llama-unoptimised": ("llama", dict(optimize=False)),
    # Not looked at until the others were read.
    "mobilenet_v2-train": ("mobilenet_v2", dict(train=True)),
    "qwen2-bf16": ("qwen2", half(torch.bfloat16)),
    "bart-fp16": ("bart", half(torch.float16)),
    "mistral-dynamic": ("mistral", batched()),
    "bart-dynamic": ("bart", batched(2)),
    "mobilenet_v2-dynamic": ("mobilenet_v2", batched()),
    "qwen3-opset23": ("qwen3", dict(opset=23)),
    "roberta-opset18": ("roberta", dict(opset=18)),
    "deit3-opset22": ("deit3", dict(opset=22)),
    "encoder-int8": ("encoder", dict(few=True)),
    "phi-inside": ("phi", dict(external=False)),
    "regnet_y_400mf-batch4": ("regnet_y_400mf", dict(batch=4)),
    "gru-dynamic": ("gru", batched()),
    "vgg11_bn-train": ("vgg11_bn", dict(train=True)),
    "encoder-unoptimised": ("encoder", dict(optimize=False)),
}


def counted(made, inputs):
    """Multiply-adds of a sample, without memory for values where the network allows it."""
    for device in ("meta", "cpu"):
        try:
            with torch.device(device):
                network = made().eval()
            with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
                # Recurrent layers in one call are not counted.
                with torch.backends.mkldnn.flags(enabled=False):
                    network(*(values.to(device) for values in inputs(1)))
            return counter.get_total_flops() // 2
        except Exception as error:
            failed = error
    raise failed


def kept(network, values, batch):
    own = {each.untyped_storage().data_ptr() for each in [*network.parameters(), *network.buffers()]}
    storages = {}

    def save(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage
        return tensor

    for module in network.train().modules():
        for key, value in vars(module).items():
            # The exported network leaves nothing out at random.
            if isinstance(value, float) and ("drop" in key or isinstance(module, nn.Dropout)):
                setattr(module, key, 0.0)
    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        result = network(*values)
        result = result[0] if isinstance(result, (tuple, list)) else result
        if 2 <= result.dim() <= 3:
            scores = result.flatten(0, -2)
            result = F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))
    total = sum(storage.nbytes() for storage in storages.values())
    del result
    return total // batch


def exported(folder, name, made, inputs, train=False, cast=None, dynamic=0, opset=None, few=False, batch=None, external=True, optimize=True):
    torch.manual_seed(7)
    network = made().eval()
    told = {"file": f"{name}.onnx", "parameters": sum(each.numel() for each in network.parameters())}
    try:
        told["multiply_adds"] = counted(made, inputs)
    except Exception as error:
        told["uncounted"] = f"{type(error).__name__}: {error}"[:200]
    for samples in (1, 2):
        try:
            told["kept"] = kept(network, inputs(samples), samples)
            break
        except Exception as error:
            told["not_kept"] = f"{type(error).__name__}: {error}"[:200]
    network.train(train)
    values = inputs(batch or (2 if train or dynamic else 1))
    if cast:
        network.to(cast)
        values = tuple(each.to(cast) if each.is_floating_point() else each for each in values)
    options = dict(dynamo=True, optimize=optimize, external_data=external, verbose=False)
    if opset:
        options["opset_version"] = opset
    if dynamic:
        sides = [{0: torch.export.Dim("batch")} for _ in range(dynamic)]
        # What takes a list of values has them under one name.
        options["dynamic_shapes"] = (tuple(sides),) if isinstance(network, Keys) else tuple(sides)
    path = folder / f"{name}.onnx"
    try:
        torch.onnx.export(network, values, str(path), **options)
    except torch.onnx.errors.OnnxExporterError:
        # Views of what fused attention gives may not export; written out they do.
        timm.layers.set_fused_attn(False)
        network = made().train(train)
        if isinstance(network, Keys):
            network.network.set_attn_implementation("eager")
        torch.onnx.export(network, values, str(path), **options)
    finally:
        timm.layers.set_fused_attn(True)
    if few:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        whole = path.rename(folder / f"{name}.whole")
        quantize_dynamic(str(whole), str(path), weight_type=QuantType.QInt8)
        whole.unlink()
    return told


def main():
    folder, wanted = pathlib.Path(sys.argv[1]), sys.argv[2:]
    cases = {name: (*case, {}) for name, case in NETWORKS.items()}
    cases |= {name: (*NETWORKS[of], options) for name, (of, options) in AGAIN.items()}
    for name in wanted or cases:
        made, inputs, options = cases[name]
        out, sys.stdout = sys.stdout, sys.stderr
        try:
            told = exported(folder, name, made, inputs, **options)
        except Exception as error:
            told = {"file": f"{name}.onnx", "error": f"{type(error).__name__}: {error.__cause__ or error}"[:300]}
        finally:
            sys.stdout = out
        print(json.dumps(told), flush=True)
        gc.collect()


main()
