//! What `transformers` (5.23, its `configuration_*.py`) takes for the figures that a file leaves out, for the types that
//! are most used. Only what cannot be told from the file's other keys stands here.

/// Keys and their usual values; none for a type whose files must say all.
pub(super) fn defaults(kind: &str) -> &'static [(&'static str, u64)] {
    match kind {
        "bert" | "camembert" | "xlm-roberta" | "roberta-prelayernorm" | "data2vec-text" => &BERT,
        "roberta" => &ROBERTA,
        "electra" => &ELECTRA,
        "modernbert" => &MODERN,
        "distilbert" => &DISTILBERT,
        "gpt2" | "gpt_bigcode" => &GPT2,
        "gptj" => &GPTJ,
        "gpt_neox" => &NEOX,
        "opt" => &OPT,
        "bloom" => &BLOOM,
        "falcon" => &FALCON,
        "mpt" => &MPT,
        "llama" => &LLAMA,
        "mistral" => &MISTRAL,
        "mixtral" => &MIXTRAL,
        "qwen2" | "qwen3" => &QWEN,
        "phi3" => &PHI3,
        "gemma" => &GEMMA,
        "t5" => &T5,
        "mamba" => &MAMBA,
        "deberta" => &DEBERTA,
        "deberta-v2" => &DEBERTA2,
        "vit" | "deit" | "beit" | "dinov2" | "vit_msn" | "data2vec-vision" | "yolos" => &VIT,
        _ => &[],
    }
}

type Figures<const N: usize> = [(&'static str, u64); N];

const BERT: Figures<5> = [
    ("hidden_size", 768),
    ("num_hidden_layers", 12),
    ("num_attention_heads", 12),
    ("intermediate_size", 3072),
    ("vocab_size", 30522),
];
const ROBERTA: Figures<5> = [BERT[0], BERT[1], BERT[2], BERT[3], ("vocab_size", 50265)];
const ELECTRA: Figures<6> = [
    ("hidden_size", 256),
    ("num_hidden_layers", 12),
    ("num_attention_heads", 4),
    ("intermediate_size", 1024),
    ("embedding_size", 128),
    ("vocab_size", 30522),
];
const MODERN: Figures<5> = [
    ("hidden_size", 768),
    ("num_hidden_layers", 22),
    ("num_attention_heads", 12),
    ("intermediate_size", 1152),
    ("vocab_size", 50368),
];
const DISTILBERT: Figures<5> =
    [("dim", 768), ("n_layers", 6), ("n_heads", 12), ("hidden_dim", 3072), ("vocab_size", 30522)];
const GPT2: Figures<5> =
    [("n_embd", 768), ("n_layer", 12), ("n_head", 12), ("vocab_size", 50257), ("n_positions", 1024)];
const GPTJ: Figures<5> =
    [("n_embd", 4096), ("n_layer", 28), ("n_head", 16), ("vocab_size", 50400), ("n_positions", 2048)];
const NEOX: Figures<6> = [
    ("hidden_size", 6144),
    ("num_hidden_layers", 44),
    ("num_attention_heads", 64),
    ("intermediate_size", 24576),
    ("vocab_size", 50432),
    ("max_position_embeddings", 2048),
];
const OPT: Figures<6> = [
    ("hidden_size", 768),
    ("num_hidden_layers", 12),
    ("num_attention_heads", 12),
    ("ffn_dim", 3072),
    ("vocab_size", 50272),
    ("max_position_embeddings", 2048),
];
const BLOOM: Figures<4> = [("hidden_size", 64), ("n_layer", 2), ("n_head", 8), ("vocab_size", 250_880)];
const FALCON: Figures<4> =
    [("hidden_size", 4544), ("num_hidden_layers", 32), ("num_attention_heads", 71), ("vocab_size", 65024)];
const MPT: Figures<5> =
    [("d_model", 2048), ("n_heads", 16), ("n_layers", 24), ("vocab_size", 50368), ("max_seq_len", 2048)];
const LLAMA: Figures<6> = [
    ("hidden_size", 4096),
    ("num_hidden_layers", 32),
    ("num_attention_heads", 32),
    ("intermediate_size", 11008),
    ("vocab_size", 32000),
    ("max_position_embeddings", 2048),
];
const MISTRAL: Figures<6> =
    [LLAMA[0], LLAMA[1], LLAMA[2], ("intermediate_size", 14336), ("vocab_size", 32000), ("num_key_value_heads", 8)];
const MIXTRAL: Figures<7> =
    [LLAMA[0], LLAMA[1], LLAMA[2], MISTRAL[3], MISTRAL[4], MISTRAL[5], ("num_local_experts", 8)];
const QWEN: Figures<5> = [LLAMA[0], LLAMA[1], LLAMA[2], ("intermediate_size", 22016), ("vocab_size", 151_936)];
const PHI3: Figures<5> = [
    ("hidden_size", 3072),
    ("num_hidden_layers", 32),
    ("num_attention_heads", 32),
    ("intermediate_size", 8192),
    ("vocab_size", 32064),
];
const GEMMA: Figures<6> = [
    ("hidden_size", 3072),
    ("num_hidden_layers", 28),
    ("num_attention_heads", 16),
    ("num_key_value_heads", 16),
    ("intermediate_size", 24576),
    ("vocab_size", 256_000),
];
const T5: Figures<6> =
    [("d_model", 512), ("d_kv", 64), ("d_ff", 2048), ("num_layers", 6), ("num_heads", 8), ("vocab_size", 32128)];
const MAMBA: Figures<2> = [("hidden_size", 768), ("num_hidden_layers", 32)];
const DEBERTA: Figures<5> = [BERT[0], BERT[1], BERT[2], BERT[3], ("vocab_size", 50265)];
const DEBERTA2: Figures<5> = [
    ("hidden_size", 1536),
    ("num_hidden_layers", 24),
    ("num_attention_heads", 24),
    ("intermediate_size", 6144),
    ("vocab_size", 128_100),
];
const VIT: Figures<4> =
    [("hidden_size", 768), ("num_hidden_layers", 12), ("num_attention_heads", 12), ("intermediate_size", 3072)];
