//! The operations of both policies at several strengths against torchvision 0.26's result on the same image, as FNV-1a
//! hashes of its bytes (`v2.AutoAugment` and `v2.TrivialAugmentWide` with nearest neighbours, `v2.functional.adjust_hue`,
//! on PyTorch 2.11).
//!
//! Ties of rounding are not among them, because they can differ. In a shear by 0.2 every fifth row, or column, lies
//! exactly between two pixels, and the last bit of torchvision's float32 decides which is nearest; so it is in a rotation
//! by exactly 135 degrees. A sharpness of 1.6 differs in 4 bytes of this image, by 1.

use super::*;
use crate::sampling::random::{Purpose, key};

const HEIGHT: usize = 20;
const WIDTH: usize = 24;

fn image() -> Vec<u8> {
    let at = |c: usize, y: usize, x: usize| (c * 90 + y * 17 + x * 11 + x * y % 7) as u8;
    (0..3 * HEIGHT * WIDTH).map(|n| at(n / WIDTH / HEIGHT, n / WIDTH % HEIGHT, n % WIDTH)).collect()
}

fn hash_after(operation: Operation) -> u64 {
    let (mut planes, mut spare) = (image(), Vec::new());
    operation.apply(&mut planes, &mut spare, HEIGHT, WIDTH);
    planes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

const AUTO: [(Kind, u32, bool, u64); 63] = [
    (ShearX, 3, false, 0x6848_9d1c_eb78_5616),
    (ShearX, 3, true, 0x8167_cded_c430_6eff),
    (ShearX, 7, false, 0xccd7_8466_e207_11e3),
    (ShearX, 7, true, 0x79c6_540c_84aa_9aa0),
    (ShearX, 9, false, 0xb042_10b8_a1d7_2525),
    (ShearX, 9, true, 0xbeed_e79f_7592_842e),
    (ShearY, 3, false, 0x4df6_c422_a797_2e49),
    (ShearY, 3, true, 0x086d_8498_f3eb_a5f7),
    (ShearY, 7, false, 0x452c_ffe8_fb66_2150),
    (ShearY, 7, true, 0xcc00_0153_2346_fd29),
    (ShearY, 9, false, 0xd75e_be3a_0cf0_eb50),
    (ShearY, 9, true, 0xb6bb_2012_2637_76a1),
    (TranslateX, 3, false, 0xc27b_fd6d_f9a2_5842),
    (TranslateX, 3, true, 0xb5a1_8d96_0229_0f6e),
    (TranslateX, 7, false, 0x899a_7419_deca_bc5c),
    (TranslateX, 7, true, 0xe235_ced7_ff63_1f1a),
    (TranslateX, 9, false, 0xd8f0_bf92_60b2_6015),
    (TranslateX, 9, true, 0x492c_d00d_9cc2_3481),
    (TranslateY, 3, false, 0x0999_54a7_295b_6630),
    (TranslateY, 3, true, 0xfabe_cb5d_fb1b_0596),
    (TranslateY, 7, false, 0xd6c6_0577_4be9_c54d),
    (TranslateY, 7, true, 0xc3a4_66f2_cb7d_e1e5),
    (TranslateY, 9, false, 0xb47d_078c_345d_1d9a),
    (TranslateY, 9, true, 0xff83_c5f6_a91b_bd09),
    (Rotate, 3, false, 0xf82d_501b_a842_ca81),
    (Rotate, 3, true, 0x9b84_7d20_e3c3_4c5d),
    (Rotate, 7, false, 0x3b8e_c55f_743c_d389),
    (Rotate, 7, true, 0xb9d3_8824_de4e_c332),
    (Rotate, 9, false, 0x9346_b9bf_7939_bb32),
    (Rotate, 9, true, 0xbc5c_7d21_911a_2aad),
    (Brightness, 3, false, 0x9cf2_706a_38d3_3681),
    (Brightness, 3, true, 0x5be9_45c8_9a5b_4af9),
    (Brightness, 7, false, 0xb168_aa00_b0d5_f31c),
    (Brightness, 7, true, 0x21e3_0e30_0e42_6366),
    (Brightness, 9, false, 0x90cf_1f7a_7b40_3b19),
    (Brightness, 9, true, 0xfafa_38ba_cde6_5b53),
    (Color, 3, false, 0xb3db_480b_3c4d_7027),
    (Color, 3, true, 0x8c0b_0858_71f5_e193),
    (Color, 7, false, 0x9498_fd6d_7fad_e5ec),
    (Color, 7, true, 0x3758_573b_c4f2_e895),
    (Color, 9, false, 0x57f3_0fa6_cd8f_9610),
    (Color, 9, true, 0x857e_a941_453c_baa9),
    (Contrast, 3, false, 0xa050_cd49_779f_aaec),
    (Contrast, 3, true, 0xd531_a22e_9001_cc59),
    (Contrast, 7, false, 0x1421_d349_12e0_c6df),
    (Contrast, 7, true, 0xef6f_3a96_d3b2_5edb),
    (Contrast, 9, false, 0x5584_9150_9b61_5591),
    (Contrast, 9, true, 0x0273_f3ce_034d_84d6),
    (Sharpness, 3, false, 0xb147_25dc_0801_68b3),
    (Sharpness, 3, true, 0x8436_b086_2dc2_8bd4),
    (Sharpness, 7, false, 0xf74b_7df5_4086_a251),
    (Sharpness, 7, true, 0x1d9f_493c_7dcd_f01c),
    (Sharpness, 9, false, 0x6941_7402_c3bf_71e2),
    (Sharpness, 9, true, 0xb674_3771_4a28_823f),
    (Posterize, 3, false, 0x4ecc_28eb_17c6_21a7),
    (Posterize, 7, false, 0x0983_5c8a_8289_c18d),
    (Posterize, 9, false, 0x0a0e_69bf_b2c9_7425),
    (Solarize, 3, false, 0x9b07_0926_6687_376d),
    (Solarize, 7, false, 0x5d18_3c72_8e8e_5718),
    (Solarize, 9, false, 0x0971_d5b8_2b27_f013),
    (AutoContrast, 0, false, 0xdbc0_c229_4554_c67b),
    (Equalize, 0, false, 0x35f4_1e53_4392_856d),
    (Invert, 0, false, 0x0971_d5b8_2b27_f013),
];

const TRIVIAL: [(usize, u32, bool, u64); 63] = [
    (0, 0, false, 0xdbc0_c229_4554_c67b),
    (1, 7, false, 0xccd7_8466_e207_11e3),
    (1, 7, true, 0x79c6_540c_84aa_9aa0),
    (1, 18, false, 0x8643_1b4d_0d18_23a0),
    (1, 18, true, 0xfa7a_3168_0230_c07e),
    (1, 29, false, 0x669b_8cd9_c25a_f821),
    (1, 29, true, 0xa231_323b_d628_16b8),
    (2, 7, false, 0x452c_ffe8_fb66_2150),
    (2, 7, true, 0xcc00_0153_2346_fd29),
    (2, 18, false, 0xc138_ed67_6b5f_1093),
    (2, 18, true, 0xb0b4_b42b_0064_716a),
    (2, 29, false, 0x93c8_071c_ab1d_09e6),
    (2, 29, true, 0x5a21_2b2a_0eab_44a2),
    (3, 7, false, 0x34b4_155c_9204_6c54),
    (3, 7, true, 0x7114_6e79_0475_21f8),
    (3, 18, false, 0xe001_0e2c_8af8_cdeb),
    (3, 18, true, 0x72c9_006c_8438_cd4d),
    (3, 29, false, 0x78e7_f76b_5c14_a3a5),
    (3, 29, true, 0x78e7_f76b_5c14_a3a5),
    (4, 7, false, 0xd6c6_0577_4be9_c54d),
    (4, 7, true, 0xc3a4_66f2_cb7d_e1e5),
    (4, 18, false, 0xb8f8_d07e_d8b2_df7d),
    (4, 18, true, 0xaea0_c65f_0bd4_ca92),
    (4, 29, false, 0x78e7_f76b_5c14_a3a5),
    (4, 29, true, 0x78e7_f76b_5c14_a3a5),
    (5, 7, false, 0x4867_590d_76d2_0607),
    (5, 7, true, 0x6084_29d3_9bdd_9f5a),
    (5, 18, false, 0x7e32_0999_9cd5_b6d7),
    (5, 18, true, 0x795d_691a_8368_349d),
    (5, 29, false, 0x2f6b_2788_1fd3_c47f),
    (5, 29, true, 0xd261_45f9_3e97_8ba7),
    (6, 7, false, 0x692e_569c_7d91_5e8b),
    (6, 7, true, 0x2e1d_b501_edda_89dd),
    (6, 18, false, 0xb9cf_4c1c_16fe_0556),
    (6, 18, true, 0x7560_a57f_d6a9_fd65),
    (6, 29, false, 0x4b41_752f_5e60_82ad),
    (6, 29, true, 0xa8a6_083e_9e2c_52de),
    (7, 7, false, 0x51a0_5197_c168_f27e),
    (7, 7, true, 0x79bd_60f8_22de_d212),
    (7, 18, false, 0xa706_f253_40bd_c180),
    (7, 18, true, 0xfd8c_80fd_052b_9f21),
    (7, 29, false, 0x0cfb_7f3f_d491_a75a),
    (7, 29, true, 0x8eda_6e9f_59ad_da2f),
    (8, 7, false, 0xaec1_f48e_6e23_2159),
    (8, 7, true, 0xeb64_c652_ec25_8152),
    (8, 18, false, 0xf6ad_aa2f_f2c9_9455),
    (8, 18, true, 0xab0a_42a4_506b_eefe),
    (8, 29, false, 0x4f02_0eb3_9e60_1dea),
    (8, 29, true, 0x65d8_639e_c8f3_5e1a),
    (9, 7, false, 0x037a_c4e8_8c63_0400),
    (9, 7, true, 0xde9f_c7c8_71d7_a69c),
    (9, 18, false, 0x2d20_2adb_700f_a030),
    (9, 18, true, 0xcbdf_0a46_961e_1d7c),
    (9, 29, false, 0x73c5_d583_d0b0_fc58),
    (9, 29, true, 0x173b_587e_b955_e832),
    (10, 7, false, 0x4ecc_28eb_17c6_21a7),
    (10, 18, false, 0x0a0e_69bf_b2c9_7425),
    (10, 29, false, 0xc621_8414_79e5_d865),
    (11, 7, false, 0x1b84_9971_7afb_af89),
    (11, 18, false, 0xe086_9c34_bb95_84f4),
    (11, 29, false, 0xddac_6603_9668_248d),
    (12, 0, false, 0xdbc0_c229_4554_c67b),
    (13, 0, false, 0x35f4_1e53_4392_856d),
];

const HUE: [(f64, u64); 7] = [
    (-0.5, 0x11d4_9e77_224a_fddd),
    (-0.31, 0x2b63_ae69_21ee_b12b),
    (-0.07, 0xbe94_1750_7f61_0bbd),
    (0.0, 0xdbc0_c229_4554_c67b),
    (0.1, 0x7486_f93e_2be4_9a6b),
    (0.25, 0x8c8d_4d74_2e5e_fdb4),
    (0.5, 0x11d4_9e77_224a_fddd),
];

#[test]
fn operations_of_policies_are_torchvisions() {
    let wrong = AUTO
        .iter()
        .filter(|(kind, strength, turned, hash)| hash_after(kind.at(*strength, *turned, HEIGHT, WIDTH)) != *hash);
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<&(Kind, u32, bool, u64)>::new());
    let wrong = TRIVIAL
        .iter()
        .filter(|(number, strength, turned, hash)| hash_after(trivial(*number, *strength, *turned)) != *hash);
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<&(usize, u32, bool, u64)>::new());
}

#[test]
fn hues_are_torchvisions() {
    let wrong = HUE.iter().filter(|(shift, hash)| hash_after(Operation::Hue(*shift)) != *hash);
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<&(f64, u64)>::new());
}

#[test]
fn steps_of_a_policy_come_by_their_probability() {
    let (mut none, mut two) = (0_u32, 0_u32);
    for sample in 0..10_000 {
        let mut draws = Draws::new(key(Purpose::Augment, 3, &[1, sample, 2]));
        match drawn(AutoAugment::Cifar10, &mut draws, HEIGHT, WIDTH).len() {
            0 => none += 1,
            2 => two += 1,
            _ => {}
        }
    }
    let mean = |of: &dyn Fn(f64, f64) -> f64| CIFAR10.iter().map(|[one, other]| of(one.1, other.1)).sum::<f64>() / 25.0;
    let (no_step, both) = (mean(&|p, q| (1.0 - p) * (1.0 - q)), mean(&|p, q| p * q));
    // Five standard deviations of a binomial are at most 250.
    assert!((f64::from(none) - 1e4 * no_step).abs() < 250.0, "{none}, expected {no_step}");
    assert!((f64::from(two) - 1e4 * both).abs() < 250.0, "{two}, expected {both}");
}
