//! Names of microarchitectures, from the processors' identification numbers.
//!
//! Sources: AMD - the model ranges of `bsp_init_amd` in Linux `arch/x86/kernel/cpu/amd.c`, and LLVM
//! `llvm/lib/TargetParser/Host.cpp` (`getAMDProcessorTypeAndSubtype`) for families before Zen, for Zen+ and for the
//! custom Zen 2 parts that Linux does not list; Intel - Linux `arch/x86/include/asm/intel-family.h`, also for the
//! steppings that distinguish parts of one model, and Intel SDM volume 4, table 2-1 (5Dh); Arm - Linux
//! `arch/arm64/include/asm/cputype.h` and util-linux `sys-utils/lscpu-arm.c`; Graviton - the core named for each
//! generation in the AWS Graviton Technical Guide (github.com/aws/aws-graviton-getting-started), and for the first one
//! Wikipedia, "AWS Graviton".

use std::ops::RangeInclusive;

/// The microarchitecture of an x86 processor with its displayed family, model and stepping.
pub(crate) fn x86(vendor: &str, family: u32, model: u32, stepping: u32) -> Option<&'static str> {
    match vendor {
        "AuthenticAMD" => amd(family, model),
        "HygonGenuine" => (family == 0x18).then_some("Dhyana (Zen)"),
        "GenuineIntel" => intel(family, model, stepping),
        _ => None,
    }
}

fn amd(family: u32, model: u32) -> Option<&'static str> {
    Some(match (family, model) {
        (0x0f, _) => "K8",
        (0x10 | 0x12, _) => "K10",
        (0x14, _) => "Bobcat",
        (0x15, 0x00..=0x01) => "Bulldozer",
        (0x15, 0x02 | 0x10..=0x1f) => "Piledriver",
        (0x15, 0x30..=0x3f) => "Steamroller",
        (0x15, 0x60..=0x7f) => "Excavator",
        (0x16, 0x00..=0x0f) => "Jaguar",
        (0x16, 0x30..=0x3f) => "Puma",
        (0x17, 0x08 | 0x18) => "Zen+",
        (0x17, 0x00..=0x2f | 0x50..=0x5f) => "Zen",
        (0x17, 0x30..=0x4f | 0x60..=0x7f | 0x84..=0x87 | 0x90..=0xaf) => "Zen 2",
        (0x19, 0x00..=0x0f | 0x20..=0x5f) => "Zen 3",
        (0x19, 0x10..=0x1f | 0x60..=0xaf) => "Zen 4",
        (0x1a, 0x00..=0x2f | 0x40..=0x4f | 0x60..=0x7f) => "Zen 5",
        (0x1a, 0x50..=0x5f | 0x80..=0xaf | 0xc0..=0xcf) => "Zen 6",
        _ => return None,
    })
}

/// Models of Intel's family 6 with their steppings; the first matching row counts.
const INTEL_FAMILY_6: &[(&[u32], RangeInclusive<u32>, &str)] = &[
    (&[0x0e], ANY_STEPPING, "Yonah"),
    (&[0x0f, 0x16], ANY_STEPPING, "Core"),
    (&[0x17, 0x1d], ANY_STEPPING, "Penryn"),
    (&[0x1a, 0x1e, 0x1f, 0x2e], ANY_STEPPING, "Nehalem"),
    (&[0x25, 0x2c, 0x2f], ANY_STEPPING, "Westmere"),
    (&[0x2a], ANY_STEPPING, "Sandy Bridge"),
    (&[0x2d], ANY_STEPPING, "Sandy Bridge-EP"),
    (&[0x3a], ANY_STEPPING, "Ivy Bridge"),
    (&[0x3e], ANY_STEPPING, "Ivy Bridge-EP"),
    (&[0x3c, 0x45, 0x46], ANY_STEPPING, "Haswell"),
    (&[0x3f], ANY_STEPPING, "Haswell-EP"),
    (&[0x3d, 0x47], ANY_STEPPING, "Broadwell"),
    (&[0x4f], ANY_STEPPING, "Broadwell-EP"),
    (&[0x56], ANY_STEPPING, "Broadwell-DE"),
    (&[0x4e, 0x5e], ANY_STEPPING, "Skylake"),
    // One model number for three server generations, told apart by stepping.
    (&[0x55], 10..=u32::MAX, "Cooper Lake"),
    (&[0x55], 5..=u32::MAX, "Cascade Lake"),
    (&[0x55], ANY_STEPPING, "Skylake-SP"),
    (&[0x8e], 0..=9, "Kaby Lake"),
    (&[0x8e], 10..=10, "Coffee Lake"),
    (&[0x8e], ANY_STEPPING, "Whiskey Lake or Comet Lake"),
    (&[0x9e], 0..=9, "Kaby Lake"),
    (&[0x9e], ANY_STEPPING, "Coffee Lake"),
    (&[0xa5, 0xa6], ANY_STEPPING, "Comet Lake"),
    (&[0x66], ANY_STEPPING, "Cannon Lake"),
    (&[0x6a], ANY_STEPPING, "Ice Lake-SP"),
    (&[0x6c], ANY_STEPPING, "Ice Lake-D"),
    (&[0x7d, 0x7e, 0x9d], ANY_STEPPING, "Ice Lake"),
    (&[0x8c, 0x8d], ANY_STEPPING, "Tiger Lake"),
    (&[0xa7], ANY_STEPPING, "Rocket Lake"),
    (&[0x8f], ANY_STEPPING, "Sapphire Rapids"),
    (&[0xcf], ANY_STEPPING, "Emerald Rapids"),
    (&[0xad], ANY_STEPPING, "Granite Rapids"),
    (&[0xae], ANY_STEPPING, "Granite Rapids-D"),
    (&[0xaf], ANY_STEPPING, "Sierra Forest"),
    (&[0xdd], ANY_STEPPING, "Clearwater Forest"),
    (&[0xb6], ANY_STEPPING, "Grand Ridge"),
    (&[0x8a], ANY_STEPPING, "Lakefield"),
    (&[0x97, 0x9a], ANY_STEPPING, "Alder Lake"),
    (&[0xb7, 0xba, 0xbf], ANY_STEPPING, "Raptor Lake"),
    (&[0xaa, 0xac], ANY_STEPPING, "Meteor Lake"),
    (&[0xb5, 0xc5, 0xc6], ANY_STEPPING, "Arrow Lake"),
    (&[0xbd], ANY_STEPPING, "Lunar Lake"),
    (&[0xcc, 0xe5], ANY_STEPPING, "Panther Lake"),
    (&[0xd5], ANY_STEPPING, "Wildcat Lake"),
    (&[0xd7], ANY_STEPPING, "Bartlett Lake"),
    (&[0x1c, 0x26], ANY_STEPPING, "Bonnell"),
    (&[0x27, 0x35, 0x36], ANY_STEPPING, "Saltwell"),
    (&[0x37, 0x4a, 0x4d, 0x5a, 0x5d], ANY_STEPPING, "Silvermont"),
    (&[0x4c, 0x75], ANY_STEPPING, "Airmont"),
    (&[0x5c, 0x5f], ANY_STEPPING, "Goldmont"),
    (&[0x7a], ANY_STEPPING, "Goldmont Plus"),
    (&[0x86, 0x96, 0x9c], ANY_STEPPING, "Tremont"),
    (&[0xbe], ANY_STEPPING, "Gracemont"),
    (&[0x57], ANY_STEPPING, "Knights Landing"),
    (&[0x85], ANY_STEPPING, "Knights Mill"),
];

const ANY_STEPPING: RangeInclusive<u32> = 0..=u32::MAX;

fn intel(family: u32, model: u32, stepping: u32) -> Option<&'static str> {
    match (family, model) {
        (0x06, _) => {
            let row =
                INTEL_FAMILY_6.iter().find(|(models, of, _)| models.contains(&model) && of.contains(&stepping))?;
            Some(row.2)
        }
        (0x0f, _) => Some("NetBurst"),
        (0x12, 0x01 | 0x03) => Some("Nova Lake"),
        (0x13, 0x01) => Some("Diamond Rapids"),
        _ => None,
    }
}

/// The company behind an implementer code of the main ID register.
pub(crate) fn arm_implementer(code: u32) -> Option<&'static str> {
    Some(match code {
        0x41 => "ARM",
        0x42 => "Broadcom",
        0x43 => "Cavium",
        0x46 => "Fujitsu",
        0x48 => "HiSilicon",
        0x4e => "NVIDIA",
        0x50 => "APM",
        0x51 => "Qualcomm",
        0x53 => "Samsung",
        0x56 => "Marvell",
        0x61 => "Apple",
        0x6d => "Microsoft",
        0x70 => "Phytium",
        0xc0 => "Ampere",
        _ => return None,
    })
}

/// Cores by implementer and part.
const ARM_PARTS: &[(u32, &[u32], &str)] = &[
    (0x41, &[0xd03], "Cortex-A53"),
    (0x41, &[0xd04], "Cortex-A35"),
    (0x41, &[0xd05], "Cortex-A55"),
    (0x41, &[0xd06], "Cortex-A65"),
    (0x41, &[0xd07], "Cortex-A57"),
    (0x41, &[0xd08], "Cortex-A72"),
    (0x41, &[0xd09], "Cortex-A73"),
    (0x41, &[0xd0a], "Cortex-A75"),
    (0x41, &[0xd0b], "Cortex-A76"),
    (0x41, &[0xd0c], "Neoverse N1"),
    (0x41, &[0xd0d], "Cortex-A77"),
    (0x41, &[0xd0e], "Cortex-A76AE"),
    (0x41, &[0xd40], "Neoverse V1"),
    (0x41, &[0xd41], "Cortex-A78"),
    (0x41, &[0xd42], "Cortex-A78AE"),
    (0x41, &[0xd43], "Cortex-A65AE"),
    (0x41, &[0xd44], "Cortex-X1"),
    (0x41, &[0xd46], "Cortex-A510"),
    (0x41, &[0xd47], "Cortex-A710"),
    (0x41, &[0xd48], "Cortex-X2"),
    (0x41, &[0xd49], "Neoverse N2"),
    (0x41, &[0xd4a], "Neoverse E1"),
    (0x41, &[0xd4b], "Cortex-A78C"),
    (0x41, &[0xd4c], "Cortex-X1C"),
    (0x41, &[0xd4d], "Cortex-A715"),
    (0x41, &[0xd4e], "Cortex-X3"),
    (0x41, &[0xd4f], "Neoverse V2"),
    (0x41, &[0xd80], "Cortex-A520"),
    (0x41, &[0xd81], "Cortex-A720"),
    (0x41, &[0xd82], "Cortex-X4"),
    (0x41, &[0xd83], "Neoverse V3AE"),
    (0x41, &[0xd84], "Neoverse V3"),
    (0x41, &[0xd85], "Cortex-X925"),
    (0x41, &[0xd87], "Cortex-A725"),
    (0x41, &[0xd88], "Cortex-A520AE"),
    (0x41, &[0xd89], "Cortex-A720AE"),
    (0x41, &[0xd8a], "C1-Nano"),
    (0x41, &[0xd8b], "C1-Pro"),
    (0x41, &[0xd8c], "C1-Ultra"),
    (0x41, &[0xd8e], "Neoverse N3"),
    (0x41, &[0xd8f], "Cortex-A320"),
    (0x41, &[0xd90], "C1-Premium"),
    (0x42, &[0x100], "Brahma-B53"),
    (0x42, &[0x516], "ThunderX2"),
    (0x43, &[0x0a0, 0x0a1, 0x0a2, 0x0a3], "ThunderX"),
    (0x43, &[0x0af], "ThunderX2"),
    (0x43, &[0x0b8], "ThunderX3"),
    (0x46, &[0x001], "A64FX"),
    (0x46, &[0x003], "MONAKA"),
    (0x48, &[0xd01], "TaiShan v110"),
    (0x4e, &[0x000], "Denver"),
    (0x4e, &[0x003], "Denver 2"),
    (0x4e, &[0x004], "Carmel"),
    (0x4e, &[0x010], "Olympus"),
    (0x51, &[0x001], "Oryon"),
    (0x51, &[0xc00], "Falkor"),
    (0x61, &[0x022, 0x024, 0x028], "Icestorm (M1)"),
    (0x61, &[0x023, 0x025, 0x029], "Firestorm (M1)"),
    (0x61, &[0x032, 0x034, 0x038], "Blizzard (M2)"),
    (0x61, &[0x033, 0x035, 0x039], "Avalanche (M2)"),
    // Azure Cobalt 100.
    (0x6d, &[0xd49], "Neoverse N2"),
    (0x70, &[0x660], "FTC660"),
    (0x70, &[0x661], "FTC661"),
    (0x70, &[0x662], "FTC662"),
    (0x70, &[0x663], "FTC663"),
    (0x70, &[0x664], "FTC664"),
    (0x70, &[0x862], "FTC862"),
    (0xc0, &[0xac3], "Ampere-1"),
    (0xc0, &[0xac4], "Ampere-1A"),
];

/// The microarchitecture of an Arm processor by implementer and part.
pub(crate) fn arm(implementer: u32, part: u32) -> Option<&'static str> {
    let row = ARM_PARTS.iter().find(|(of, parts, _)| *of == implementer && parts.contains(&part))?;
    Some(row.2)
}

/// The Graviton generation by its core; valid only on Amazon EC2.
pub(crate) fn graviton(implementer: u32, part: u32) -> Option<&'static str> {
    Some(match (implementer, part) {
        (0x41, 0xd08) => "AWS Graviton",
        (0x41, 0xd0c) => "AWS Graviton2",
        (0x41, 0xd40) => "AWS Graviton3",
        (0x41, 0xd4f) => "AWS Graviton4",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x86_is_named_by_family_model_stepping() {
        assert_eq!(x86("AuthenticAMD", 26, 2, 1), Some("Zen 5"));
        assert_eq!(x86("AuthenticAMD", 0x17, 0x31, 0), Some("Zen 2"));
        assert_eq!(x86("AuthenticAMD", 0x17, 0x08, 2), Some("Zen+"));
        assert_eq!(x86("AuthenticAMD", 0x17, 0xa0, 0), Some("Zen 2"));
        assert_eq!(x86("AuthenticAMD", 0x17, 0x80, 0), None);
        assert_eq!(x86("AuthenticAMD", 0x1a, 0x50, 0), Some("Zen 6"));
        assert_eq!(x86("AuthenticAMD", 0x19, 0x01, 1), Some("Zen 3"));
        assert_eq!(x86("AuthenticAMD", 0x19, 0x11, 1), Some("Zen 4"));
        assert_eq!(x86("GenuineIntel", 6, 0x55, 4), Some("Skylake-SP"));
        assert_eq!(x86("GenuineIntel", 6, 0x55, 7), Some("Cascade Lake"));
        assert_eq!(x86("GenuineIntel", 6, 0x55, 11), Some("Cooper Lake"));
        assert_eq!(x86("GenuineIntel", 6, 0x8f, 8), Some("Sapphire Rapids"));
        assert_eq!(x86("GenuineIntel", 6, 0x2a, 7), Some("Sandy Bridge"));
        assert_eq!(x86("GenuineIntel", 6, 0x9e, 9), Some("Kaby Lake"));
        assert_eq!(x86("GenuineIntel", 6, 0x9e, 10), Some("Coffee Lake"));
        assert_eq!(x86("GenuineIntel", 0x13, 0x01, 0), Some("Diamond Rapids"));
        assert_eq!(x86("GenuineIntel", 6, 0xff, 0), None);
        assert_eq!(x86("CentaurHauls", 6, 0x2a, 0), None);
    }

    #[test]
    fn arm_is_named_by_implementer_and_part() {
        assert_eq!(arm(0x41, 0xd0c), Some("Neoverse N1"));
        assert_eq!(arm(0x41, 0xd40), Some("Neoverse V1"));
        assert_eq!(arm(0xc0, 0xac3), Some("Ampere-1"));
        assert_eq!(arm(0x6d, 0xd49), Some("Neoverse N2"));
        assert_eq!(arm(0x42, 0xd0c), None);
        assert_eq!(graviton(0x41, 0xd4f), Some("AWS Graviton4"));
        assert_eq!(arm_implementer(0xc0), Some("Ampere"));
    }
}
