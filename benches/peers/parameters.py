"""Counts the weights of networks of `transformers`, what they multiply and what they keep, and writes their files.

    parameters.py FOLDER [TYPE...]

For each type and each task that is usual for it a `config.json` is written to FOLDER as `save_pretrained` writes it (what
differs from the type's own figures, and which class it belongs to); printed is one line of JSON each, with the file and the
counts (`counted.py`): multiply-adds of a sample by the tokens it has (0 where it is no text), and bytes that a sample of
the first of these lengths keeps for the backward pass. Networks are made without memory for their weights. Figures beside
the usual ones are named below: the sizes that people train, and what a type can have otherwise.
"""

import json
import os
import pathlib
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from transformers.models.auto import modeling_auto as auto

import counted

folder, chosen = pathlib.Path(sys.argv[1]), sys.argv[2:]

TASKS = [
    auto.MODEL_MAPPING,
    auto.MODEL_FOR_CAUSAL_LM_MAPPING,
    auto.MODEL_FOR_MASKED_LM_MAPPING,
    auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    auto.MODEL_FOR_QUESTION_ANSWERING_MAPPING,
    auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING,
    auto.MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING,
    auto.MODEL_FOR_CTC_MAPPING,
    auto.MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING,
    auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING,
    auto.MODEL_FOR_OBJECT_DETECTION_MAPPING,
]

# Figures other than the usual ones of a type.
OTHERS = {
    "resnet": [dict(layer_type="basic", depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512]), dict(num_labels=1000)],
    "mobilenet_v2": [dict(depth_multiplier=1.4), dict(depth_multiplier=0.35, num_labels=1001)],
    "mobilenet_v1": [dict(depth_multiplier=0.75, num_labels=1001)],
    "vit": [
        dict(hidden_size=384, num_attention_heads=6, intermediate_size=1536, num_labels=10),
        dict(patch_size=32, image_size=384, qkv_bias=False),
        dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096),
    ],
    "bert": [
        dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096),
        dict(hidden_size=312, num_hidden_layers=4, num_attention_heads=12, intermediate_size=1200, vocab_size=21128),
        dict(num_labels=7, type_vocab_size=1, max_position_embeddings=1024),
    ],
    "roberta": [dict(max_position_embeddings=514, type_vocab_size=1)],
    "gpt2": [
        dict(n_embd=1600, n_layer=48, n_head=25),
        dict(n_embd=768, n_layer=6, n_inner=2048, tie_word_embeddings=False),
        dict(num_labels=5, n_positions=2048),
    ],
    "llama": [
        dict(num_key_value_heads=8, intermediate_size=14336, vocab_size=128256),
        dict(
            hidden_size=2048,
            num_hidden_layers=16,
            num_attention_heads=32,
            num_key_value_heads=8,
            head_dim=64,
            intermediate_size=8192,
            tie_word_embeddings=True,
        ),
        dict(attention_bias=True, mlp_bias=True, hidden_size=512, num_hidden_layers=4, num_attention_heads=8),
        dict(hidden_size=640, num_attention_heads=8, head_dim=128, num_hidden_layers=3),
    ],
    "mpt": [
        dict(d_model=4096, n_heads=32, n_layers=32),
        dict(expansion_ratio=8, n_layers=2),
        dict(no_bias=False, n_layers=2),
        dict(attn_config=dict(alibi=False), n_layers=2),
        dict(attn_config=dict(alibi=True), n_layers=2),
    ],
    "qwen2": [
        dict(hidden_size=896, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2, tie_word_embeddings=True),
    ],
    "qwen3": [dict(hidden_size=1024, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128)],
    "mixtral": [dict(num_local_experts=4, num_hidden_layers=4)],
    "qwen2_moe": [dict(num_hidden_layers=3), dict(num_hidden_layers=4, decoder_sparse_step=2), dict(num_hidden_layers=4, mlp_only_layers=[0])],
    "qwen3_moe": [dict(num_hidden_layers=3)],
    "gemma": [dict(hidden_size=2048, num_hidden_layers=18, num_attention_heads=8, num_key_value_heads=1)],
    "falcon": [dict(new_decoder_architecture=True, hidden_size=4096, num_attention_heads=64, num_kv_heads=8, num_hidden_layers=2), dict(multi_query=False, parallel_attn=False, bias=True, alibi=True, num_hidden_layers=2)],
    "opt": [dict(word_embed_proj_dim=512, hidden_size=1024, num_attention_heads=16, ffn_dim=4096, do_layer_norm_before=False)],
    "phi": [dict(hidden_size=2560, num_attention_heads=32, num_hidden_layers=4)],
    "bloom": [dict(hidden_size=1024, n_layer=24, n_head=16)],
    "t5": [dict(d_model=768, d_ff=2048, num_layers=12, num_heads=12, feed_forward_proj="gated-gelu", tie_word_embeddings=False)],
    "swin": [dict(embed_dim=128, depths=[2, 2, 18, 2], num_heads=[4, 8, 16, 32], window_size=12, image_size=384, num_labels=1000)],
    "swinv2": [dict(embed_dim=96, window_size=8, image_size=256), dict(window_size=16, image_size=256, num_labels=1000)],
    "regnet": [dict(layer_type="x", hidden_sizes=[24, 56, 152, 368], depths=[1, 1, 4, 7], groups_width=8), dict(num_labels=1000)],
    "efficientnet": [
        dict(width_coefficient=1.0, depth_coefficient=1.0, image_size=224, hidden_dim=1280, num_labels=1000),
        dict(width_coefficient=1.4, depth_coefficient=1.8, image_size=380, hidden_dim=1792, num_labels=10),
    ],
    "convnext": [dict(layer_scale_init_value=0.0)],
    "segformer": [dict(hidden_sizes=[64, 128, 320, 512], depths=[3, 4, 6, 3], decoder_hidden_size=768, num_labels=150)],
    "deberta-v2": [
        dict(
            relative_attention=True,
            position_buckets=256,
            norm_rel_ebd="layer_norm",
            share_att_key=True,
            pos_att_type=["p2c", "c2p"],
            position_biased_input=False,
            hidden_size=768,
            num_hidden_layers=12,
            num_attention_heads=12,
            intermediate_size=3072,
        ),
        dict(relative_attention=True, pos_att_type="c2p|p2c", conv_kernel_size=3, conv_act="gelu", num_hidden_layers=2),
    ],
    "deberta": [dict(relative_attention=True, pos_att_type=["c2p", "p2c"], position_biased_input=False)],
    "whisper": [dict(d_model=768, encoder_layers=12, decoder_layers=12, encoder_attention_heads=12, decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072)],
    "wav2vec2": [dict(do_stable_layer_norm=True, feat_extract_norm="layer", conv_bias=True, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)],
    "mamba": [dict(hidden_size=1024, num_hidden_layers=48), dict(use_bias=True, expand=3, tie_word_embeddings=False)],
    "mamba2": [dict(num_hidden_layers=24, hidden_size=768, num_heads=24, n_groups=1, vocab_size=50288, tie_word_embeddings=True)],
    "rwkv": [dict(hidden_size=768, num_hidden_layers=12, attention_hidden_size=1024, intermediate_size=2048)],
    "detr": [dict(backbone_config=dict(model_type="resnet", layer_type="basic", depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512], out_features=["stage4"]), num_queries=50, position_embedding_type="learned", num_labels=20)],
    "electra": [dict(hidden_size=768, embedding_size=768, num_attention_heads=12, intermediate_size=3072)],
    "albert": [dict(hidden_size=768, num_attention_heads=12, intermediate_size=3072, embedding_size=128), dict(num_hidden_layers=12, inner_group_num=1, num_hidden_groups=1, hidden_size=1024, num_attention_heads=16, intermediate_size=4096)],
    "gpt_neox": [dict(hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048, use_parallel_residual=False)],
}

# Types whose usual figures are those of no network that is trained, or that are read by their keys.
TYPES = """albert bart beit bert bloom clip clip_text_model clip_vision_model convnext convnextv2 deberta deberta-v2 deit
detr dinov2 distilbert efficientnet electra falcon gemma gemma2 gemma3_text gpt2 gpt_bigcode gpt_neo gpt_neox gptj llama mamba
mamba2 marian mbart mistral mixtral mobilenet_v1 mobilenet_v2 mobilevit modernbert mpt mt5 olmo olmo2 opt phi phi3 qwen2 qwen2_moe
qwen3 qwen3_moe regnet resnet roberta rwkv segformer stablelm starcoder2 swin swinv2 t5 vit wav2vec2 whisper
xlm-roberta yolos""".split()


def made(network, config, attention, experts):
    ways = dict(attn_implementation=attention)
    if network._can_set_experts_implementation():
        ways["experts_implementation"] = experts
    with torch.device("meta"):
        return network._from_config(config, **ways)


def tried(what, count):
    """What `count` answers; nothing where the network cannot be run so."""
    try:
        return count()
    except Exception as error:
        print(f"{what}: {type(error).__name__}: {str(error).splitlines()[0][:200]}", file=sys.stderr)
        return None


# Its usual picture is seen by a network of another library.
USUAL = {"detr": dict(backbone_config=dict(model_type="resnet", out_features=["stage4"]))}


def written(name, kind, network, figures):
    config = transformers.AutoConfig.for_model(kind, **{**USUAL.get(kind, {}), **figures})
    model = made(network, config, "eager", "batched_mm")
    config.architectures = [network.__name__]
    path = folder / f"{name}.json"
    path.write_text(json.dumps(config.to_diff_dict(), default=str, indent=1))
    line = {"file": path.name, "parameters": sum(weight.numel() for weight in model.parameters())}
    counted.prepare(config)
    lengths = counted.lengths(model, config)
    line["multiply_adds"] = {
        length: tried(f"{name} at {length}", lambda: counted.multiply_adds(model, config, length)) for length in lengths
    }
    # Products of many small matrices copy weights for each token, and that would be kept.
    plain = made(network, config, "eager", "grouped_mm")
    line["kept_bytes_written_out"] = tried(f"{name} kept", lambda: counted.kept(plain, config, lengths[0], False))
    fused = tried(f"{name} fused", lambda: made(network, config, "sdpa", "grouped_mm")) if model._supports_sdpa else None
    if fused is not None:
        line["kept_bytes"] = tried(f"{name} fused", lambda: counted.kept(fused, config, lengths[0], True))
    print(json.dumps(line), flush=True)


for kind in chosen or TYPES:
    usual = type(transformers.AutoConfig.for_model(kind))
    networks = []
    for task in TASKS:
        network = task.get(usual, None)
        for one in network if isinstance(network, (list, tuple)) else [network]:
            if one is not None and one not in networks:
                networks.append(one)
    for number, figures in enumerate([{}] + OTHERS.get(kind, [])):
        for network in networks:
            name = f"{kind}-{number}-{network.__name__}"
            try:
                written(name, kind, network, figures)
            except Exception as error:  # A class that does not take such figures.
                print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
