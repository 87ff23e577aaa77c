//! Names of microarchitectures, from the processors' identification numbers.
//!
//! Sources: AMD - the model ranges of `bsp_init_amd` in Linux `arch/x86/kernel/cpu/amd.c`, and LLVM
//! `llvm/lib/TargetParser/Host.cpp` (`getAMDProcessorTypeAndSubtype`) for families before Zen, for Zen+ and for the
//! custom Zen 2 parts that Linux does not list; Intel - Linux `arch/x86/include/asm/intel-family.h`, also for the
//! steppings that distinguish parts of one model, and Intel SDM volume 4, table 2-1 (5Dh); Arm - Linux
//! `arch/arm64/include/asm/cputype.h` and util-linux `sys-utils/lscpu-arm.c`; Graviton - the core named for each
//! generation in the AWS Graviton Technical Guide (github.com/aws/aws-graviton-getting-started), and for the first one
//! Wikipedia, "AWS Graviton".

use crate::root::{data_lines, known_name};

/// Vendor, family, models, steppings and name, by tabs.
const PROCESSORS: &str = include_str!("../data/processors.txt");

/// The microarchitecture of an x86 processor with its displayed family, model and stepping.
pub(crate) fn x86(vendor: &str, family: u32, model: u32, stepping: u32) -> Option<&'static str> {
    data_lines(PROCESSORS).find_map(|row| {
        let [of, families, models, steppings, name] = row.split('\t').collect::<Vec<_>>()[..] else { return None };
        let has_numbers = [(families, family), (models, model), (steppings, stepping)]
            .into_iter()
            .all(|(list, number)| list == "*" || list.split(',').any(|range| is_in_range(range, number)));
        (of == vendor && has_numbers).then_some(name)
    })
}

/// `0x17` or `0x10-0x1f`.
fn is_in_range(range: &str, number: u32) -> bool {
    let hexadecimal = |text: &str| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    hexadecimal(first).zip(hexadecimal(last)).is_some_and(|(first, last)| (first..=last).contains(&number))
}

/// The microarchitecture of an Arm processor by implementer and part.
pub(crate) fn arm(implementer: u32, part: u32) -> Option<&'static str> {
    x86(&format!("{implementer:#04x}"), 0, part, 0)
}

/// The company behind an implementer code of the main ID register.
pub(crate) fn arm_implementer(code: u32) -> Option<&'static str> {
    known_name("arm_implementer", |known| known == format!("{code:#04x}"))
}

/// The Graviton generation by its core; valid only on Amazon EC2.
pub(crate) fn graviton(implementer: u32, part: u32) -> Option<&'static str> {
    known_name("graviton", |known| known == format!("{implementer:#04x} {part:#05x}"))
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

    #[test]
    fn rows_of_processors_are_whole() {
        for row in data_lines(PROCESSORS) {
            let columns: Vec<&str> = row.split('\t').collect();
            assert_eq!(columns.len(), 5, "{row}");
            for range in columns[1..4].iter().flat_map(|list| list.split(',')).filter(|range| *range != "*") {
                let first = u32::from_str_radix(range.split('-').next().unwrap().trim_start_matches("0x"), 16).unwrap();
                assert!(is_in_range(range, first), "{row}");
            }
        }
    }
}
