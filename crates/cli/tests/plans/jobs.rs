//! The jobs that are planned.

/// ResNet-50 on ImageNet, with more lines.
pub fn resnet(lines: &str) -> String {
    format!(
        "name: pictures
run: python train.py
data: {{samples: 1281167, bytes: 147 GB}}
workload:
  model: {{config: {{model_type: resnet, layer_type: bottleneck, depths: [3, 4, 6, 3]}}}}
  image: 224
  batch: 1024
  epochs: 90
  optimizer: sgd_momentum
{lines}"
    )
}

/// A Llama of 70 billion weights, with more lines.
pub fn llama(lines: &str) -> String {
    format!(
        "name: text
run: python train.py
data: {{bytes: 1 GB}}
workload:
  model: {{config: {{model_type: llama, hidden_size: 8192, num_hidden_layers: 80, num_attention_heads: 64, num_key_value_heads: 8, intermediate_size: 28672, vocab_size: 128256}}}}
  sequence: 4096
  batch: 64
  tokens: 10M
{lines}"
    )
}
