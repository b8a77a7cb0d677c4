//! Peaks of memory that were published, and what is estimated for the same rows: figures of the sweep of nanotron's
//! Ultra-Scale Playbook (Apache-2.0), of FlagPerf (Apache-2.0) and of ml-engineering (CC BY-SA 4.0), read as any table is.

use domain::Bytes;
use domain::gpu::{Gpu, GpuArchitecture, GpuTraits, Link, Rates};
use plan::estimate::FittedCoefficients;
use plan::estimate::memory::memory_with;
use plan::measured::{MeasuredRow, Networks, cases};

const HEADER: &str = "source_id,model,gpu,n_gpus,precision,batch_per_gpu,image_or_seq,parallelism,grad_checkpoint,\
                      peak_memory_gib,memory_kind,memory_exact_or_bound,framework,throughput\n";
const NANOTRON: &str = "Llama-like 1B L16 h2048 a32 ffn8192 vocab131072 MHA tied-emb";

fn gpu(name: &str) -> Gpu {
    let (architecture, gib) = match name {
        "B200" => (GpuArchitecture::Blackwell, 178),
        "A100" => (GpuArchitecture::Ampere, 79),
        _ => (GpuArchitecture::Hopper, 79),
    };
    Gpu {
        name: name.to_owned(),
        architecture,
        memory: Bytes(gib << 30),
        usable: Bytes(gib << 30),
        bandwidth: 3.35e12,
        rates: Rates { fp32: 67e12, fp16: Some(989e12), bf16: Some(989e12), ..Rates::default() },
        link: Link::Switch(900e9),
        pcie: 5,
        multiprocessors: 132,
        power: 700.0,
        source: String::new(),
        traits: GpuTraits::default(),
    }
}

/// Estimates the peak of a row; `within` is the relative difference that is allowed.
fn check(row: &str, within: f64) {
    let rows = MeasuredRow::table(&format!("{HEADER}{row}\n")).expect("a table");
    let figures = FittedCoefficients::embedded().expect("embedded numbers").memory;
    let gpus = |name: &str, _: Option<f64>| Some(gpu(name));
    let case = cases(&[&rows[0]], &Networks::published(), &gpus, &figures).remove(0).expect("eligible");
    let estimate = memory_with(&case.model, &case.setup, &case.savings, &figures);
    let estimated = case.memory.metric.of_estimate(&estimate) / f64::from(1 << 30);
    let measured = rows[0].peak.expect("a peak");
    assert!((estimated / measured - 1.0).abs() <= within, "{estimated:.2} GiB, measured {measured}: {row}");
}

/// A row of nanotron's sweep.
fn nanotron(cell: &str, gpus: u32, peak: f64, within: f64) {
    let precision = "bf16 (fp32 grad accumulation)";
    check(
        &format!(
            "n,{NANOTRON},H100,{gpus},{precision},1,4096,{cell} global_batch=256,,{peak},torch peak,exact,nanotron,"
        ),
        within,
    );
}

#[test]
fn sharding_the_optimizer_saves_what_it_saved() {
    // Nothing sharded takes the same on any number of replicas.
    nanotron("DP8 TP1 PP1 ZeRO0", 8, 36.67, 0.08);
    nanotron("DP256 TP1 PP1 ZeRO0", 256, 36.65, 0.08);
    nanotron("DP8 TP1 PP1 ZeRO1", 8, 24.24, 0.08);
    nanotron("DP128 TP1 PP1 ZeRO1", 128, 23.73, 0.08);
}

#[test]
fn ranks_that_share_layers_divide_the_sequence_between_them() {
    nanotron("DP64 TP1 PP1 ZeRO1", 64, 23.76, 0.08);
    nanotron("DP32 TP2 PP1 ZeRO1", 64, 12.06, 0.08);
    nanotron("DP16 TP4 PP1 ZeRO1", 64, 6.63, 0.1);
    nanotron("DP8 TP8 PP1 ZeRO1", 64, 3.71, 0.1);
    nanotron("DP4 TP16 PP1 ZeRO1", 64, 2.38, 0.15);
    nanotron("DP2 TP32 PP1 ZeRO1", 64, 1.73, 0.2);
}

#[test]
fn the_first_stage_of_a_pipeline_holds_the_most() {
    nanotron("DP8 TP1 PP2 ZeRO1", 16, 19.45, 0.1);
    nanotron("DP4 TP1 PP4 ZeRO1", 16, 16.79, 0.1);
    // LLaMA-7B, four stages of two ranks: 46.8, 38.9, 31.7 and 26.9 GB.
    let row = "f,LLaMA-7B,A100,8,fp16 O2 (fp32 master),4,2048,DP1 TP2 PP4 sharding stage1 grad_accum=512,False,46.8,\
               largest stage,exact,Paddle,";
    check(row, 0.1);
}

#[test]
fn long_sequences_take_what_enters_each_block() {
    let row = |tokens: u64, peak: f64| {
        format!(
            "m,Llama-3.1-8B,B200,8,bf16,1,{tokens},ZeRO3 8 + CPU AdamW offload + Liger-Kernel (attention FA4),True,{peak},\
             torch max_memory_reserved,exact,DeepSpeed,"
        )
    };
    check(&row(8192, 16.3), 0.2);
    // Too high: what a block at work holds is counted as if only its normalisations were fused.
    check(&row(65_536, 37.6), 0.3);
    check(&row(262_144, 124.6), 0.3);
}

#[test]
fn ranks_that_share_sequences_divide_the_work() {
    let rate = |cell: &str, gpus: u32| {
        let row = format!("m,Llama-3.1-8B,H100,{gpus},bf16,1,32768,{cell},True,,,,anything,1");
        let row = row.replace(",anything,1", ",anything,100,tokens/s");
        let header = HEADER.replace("throughput", "throughput,unit");
        let rows = MeasuredRow::table(&format!("{header}{row}\n")).expect("a table");
        let coefficients = FittedCoefficients::embedded().expect("embedded numbers");
        let gpus = |name: &str, _: Option<f64>| Some(gpu(name));
        let case = cases(&[&rows[0]], &Networks::published(), &gpus, &coefficients.memory).remove(0).expect("eligible");
        case.samples() / case.seconds(&case.work(), &coefficients)
    };
    // Four ranks over one sequence are nearly four times as fast as one, and no faster than four sequences at once.
    let (one, shared, apart) = (rate("ZeRO3 1", 1), rate("CP4 ZeRO3", 4), rate("DP4 ZeRO3", 4));
    assert!(shared > 2.5 * one && shared <= 1.001 * apart, "{one} {shared} {apart}");
}
