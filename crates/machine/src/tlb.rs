//! Translation look-aside buffers, from cpuid.
//!
//! Intel: leaf 2 (SDM volume 2A, CPUID, table "Encoding of CPUID Leaf 2 Descriptors") and leaf 18h, "Deterministic
//! Address Translation Parameters" (the same, table "Information Returned by CPUID Instruction").
//! AMD: leaves 8000_0005h, 8000_0006h and 8000_0019h (APM volume 3, appendix E, tables E-3 and E-4).

use kelvin_core::CacheKind::{Data, Instruction, Unified};
use kelvin_core::{CacheKind, Tlb};

use crate::cpuid::Cpuid;
use crate::root::data_lines;

const KIB_4: u64 = 4 << 10;
const MIB_2: u64 = 2 << 20;
const MIB_4: u64 = 4 << 20;
const GIB_1: u64 = 1 << 30;

/// All TLBs that the processor describes: by its vendor's leaves.
pub(crate) fn tlbs(cpuid: &Cpuid, vendor: &str) -> Vec<Tlb> {
    match vendor {
        "AuthenticAMD" | "HygonGenuine" => amd(cpuid),
        "GenuineIntel" => intel(cpuid),
        _ => Vec::new(),
    }
}

fn amd(cpuid: &Cpuid) -> Vec<Tlb> {
    let mut tlbs = Vec::new();
    if let Some([large, small, ..]) = cpuid.leaf(0x8000_0005, 0) {
        for (register, page_bytes) in [(small, KIB_4), (large, MIB_2)] {
            let [instruction_entries, instruction_ways, data_entries, data_ways] = register.to_le_bytes();
            for (kind, entries, ways) in
                [(Data, data_entries, data_ways), (Instruction, instruction_entries, instruction_ways)]
            {
                let ways = if ways == 0xff { 0 } else { u32::from(ways) };
                tlbs.push(Tlb { level: 1, kind, page_bytes, entries: u32::from(entries), ways });
            }
        }
    }
    if let Some([large, small, ..]) = cpuid.leaf(0x8000_0006, 0) {
        tlbs.extend(amd_extended_tlbs(small, 2, KIB_4));
        tlbs.extend(amd_extended_tlbs(large, 2, MIB_2));
    }
    if let Some([first, second, ..]) = cpuid.leaf(0x8000_0019, 0) {
        tlbs.extend(amd_extended_tlbs(first, 1, GIB_1));
        tlbs.extend(amd_extended_tlbs(second, 2, GIB_1));
    }
    tlbs.retain(|tlb| tlb.entries > 0);
    tlbs
}

/// Data and instruction TLB of one register with coded associativity (table E-4); code 0 means none, 9 refers to leaf
/// 8000_001Dh, which describes caches only.
fn amd_extended_tlbs(register: u32, level: u32, page_bytes: u64) -> impl Iterator<Item = Tlb> {
    [(Data, register >> 16), (Instruction, register & 0xffff)].into_iter().filter_map(move |(kind, half)| {
        let ways = match half >> 12 {
            code @ 1..=4 => code,
            5 => 6,
            6 => 8,
            8 => 16,
            0xa => 32,
            0xb => 48,
            0xc => 64,
            0xd => 96,
            0xe => 128,
            0xf => 0,
            _ => return None,
        };
        Some(Tlb { level, kind, page_bytes, entries: half & 0xfff, ways })
    })
}

fn intel(cpuid: &Cpuid) -> Vec<Tlb> {
    let parameters = intel_parameters(cpuid);
    if !parameters.is_empty() {
        return parameters;
    }
    let Some(registers) = cpuid.leaf(2, 0) else { return Vec::new() };
    let mut tlbs = Vec::new();
    for (index, register) in registers.into_iter().enumerate() {
        // Bit 31 marks a register without descriptors; the lowest byte of EAX is a count, not a descriptor.
        if register >> 31 == 0 {
            let codes = register.to_le_bytes().into_iter().skip(usize::from(index == 0));
            tlbs.extend(codes.flat_map(descriptor));
        }
    }
    mark_second_levels(&mut tlbs);
    tlbs
}

/// Finds the second level among data TLBs for the same pages. Descriptors name levels only where a TLB is shared with
/// instructions ("Data TLB0", "Data TLB1", "uTLB", "DTLB" are names); of two for data alone the larger is the second
/// (Stack Overflow, "Understanding TLB from CPUID results on Intel").
fn mark_second_levels(tlbs: &mut [Tlb]) {
    let data: Vec<(u64, u32)> =
        tlbs.iter().filter(|tlb| tlb.kind == Data).map(|tlb| (tlb.page_bytes, tlb.entries)).collect();
    for tlb in tlbs.iter_mut().filter(|tlb| tlb.kind == Data) {
        if data.iter().any(|&(page_bytes, entries)| page_bytes == tlb.page_bytes && entries < tlb.entries) {
            tlb.level = 2;
        }
    }
}

/// Leaf 18h, one sub-leaf for each TLB.
fn intel_parameters(cpuid: &Cpuid) -> Vec<Tlb> {
    let Some([max_subleaf, ..]) = cpuid.leaf(0x18, 0) else { return Vec::new() };
    let mut tlbs = Vec::new();
    // The bound guards against a broken hypervisor; processors have about eight sub-leaves.
    for subleaf in 0..=max_subleaf.min(63) {
        let Some([_, b, sets, d]) = cpuid.leaf(0x18, subleaf) else { continue };
        let kind = match d & 0x1f {
            // 4 is a load-only TLB, the one that matters for latency; 5, store-only, is left out.
            1 | 4 => Data,
            2 => Instruction,
            3 => Unified,
            _ => continue,
        };
        let ways = b >> 16;
        let Some(entries) = ways.checked_mul(sets).filter(|entries| *entries > 0) else { continue };
        let ways = if d >> 8 & 1 == 1 { 0 } else { ways };
        let level = d >> 5 & 7;
        for (bit, page_bytes) in [KIB_4, MIB_2, MIB_4, GIB_1].into_iter().enumerate() {
            if b >> bit & 1 == 1 {
                tlbs.push(Tlb { level, kind, page_bytes, entries, ways });
            }
        }
    }
    tlbs
}

/// The TLBs that the descriptor bytes of leaf 2 stand for.
const DESCRIPTORS: &str = include_str!("../data/tlb_descriptors.txt");

/// The TLBs that one descriptor byte of leaf 2 stands for.
fn descriptor(code: u8) -> impl Iterator<Item = Tlb> {
    data_lines(DESCRIPTORS).filter_map(described_tlb).filter(move |(byte, _)| *byte == code).map(|(_, tlb)| tlb)
}

/// A row of [`DESCRIPTORS`]: the byte and its TLB.
fn described_tlb(row: &str) -> Option<(u8, Tlb)> {
    let [code, level, kind, page_bytes, entries, ways] = row.split(' ').collect::<Vec<_>>().try_into().ok()?;
    let tlb = Tlb {
        level: level.parse().ok()?,
        kind: cache_kind(kind)?,
        page_bytes: page_bytes.parse().ok()?,
        entries: entries.parse().ok()?,
        ways: ways.parse().ok()?,
    };
    Some((u8::from_str_radix(code, 16).ok()?, tlb))
}

/// What a TLB or a cache holds, as the kernel writes it.
pub(crate) fn cache_kind(word: &str) -> Option<CacheKind> {
    match word {
        "Data" => Some(Data),
        "Instruction" => Some(Instruction),
        "Unified" => Some(Unified),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn recorded_cpuid(answers: &[(u32, u32, [u32; 4])]) -> Cpuid {
        Cpuid::Recorded(
            answers.iter().map(|&(leaf, subleaf, answer)| ((leaf, subleaf), answer)).collect::<BTreeMap<_, _>>(),
        )
    }

    #[test]
    fn zen_3_leaves_are_decoded() {
        // Zen 3 (Ryzen 9 5950X): L1 of 64 entries, L2 data of 2048 and instruction of 512 (AMD 56665, section 2.7).
        let cpuid = recorded_cpuid(&[
            (0x8000_0000, 0, [0x8000_0023, 0, 0, 0]),
            (0x8000_0005, 0, [0xff40_ff40, 0xff40_ff40, 0, 0]),
            (0x8000_0006, 0, [0x4800_2200, 0x6800_4200, 0, 0]),
            (0x8000_0019, 0, [0xf040_f040, 0, 0, 0]),
        ]);
        let decoded_tlbs = tlbs(&cpuid, "AuthenticAMD");
        let tlb_with = |level, kind, page_bytes| {
            decoded_tlbs.iter().find(|t| (t.level, t.kind, t.page_bytes) == (level, kind, page_bytes))
        };
        assert_eq!(tlb_with(1, Data, KIB_4).map(|t| (t.entries, t.ways)), Some((64, 0)));
        assert_eq!(tlb_with(2, Data, KIB_4).map(|t| (t.entries, t.ways)), Some((2048, 8)));
        assert_eq!(tlb_with(2, Instruction, KIB_4).map(|t| (t.entries, t.ways)), Some((512, 4)));
        assert_eq!(tlb_with(1, Data, GIB_1).map(|t| (t.entries, t.ways)), Some((64, 0)));
        assert_eq!(tlb_with(2, Data, GIB_1), None);
    }

    #[test]
    fn skylake_descriptors_are_decoded() {
        // cpuid leaf 2 of a Core i7-6700: 01 63 03 76, 00f0b5ff, 00000000, 00c30000.
        let cpuid = recorded_cpuid(&[(0, 0, [0x16, 0, 0, 0]), (2, 0, [0x7603_6301, 0x00f0_b5ff, 0, 0x00c3_0000])]);
        let decoded_tlbs = tlbs(&cpuid, "GenuineIntel");
        assert!(decoded_tlbs.contains(&Tlb { level: 1, kind: Data, page_bytes: KIB_4, entries: 64, ways: 4 }));
        assert!(decoded_tlbs.contains(&Tlb { level: 1, kind: Instruction, page_bytes: KIB_4, entries: 64, ways: 8 }));
        assert!(decoded_tlbs.contains(&Tlb { level: 2, kind: Unified, page_bytes: KIB_4, entries: 1536, ways: 6 }));
        assert!(decoded_tlbs.contains(&Tlb { level: 2, kind: Unified, page_bytes: GIB_1, entries: 16, ways: 4 }));
        assert_eq!(decoded_tlbs.len(), 4 + 1 + 2 + 1 + 2);
    }

    #[test]
    fn every_row_describes_a_tlb() {
        for row in data_lines(DESCRIPTORS) {
            assert!(described_tlb(row).is_some(), "{row}");
        }
    }

    #[test]
    fn larger_data_tlb_is_second_level() {
        // cpuid leaf 2 of a Penryn (signature 10676h): TLB0 and TLB1 for pages of 4 KiB and of 4 MiB.
        let cpuid = recorded_cpuid(&[(0, 0, [0xd, 0, 0, 0]), (2, 0, [0x05b0_b101, 0x0056_57f0, 0, 0x2cb4_304e])]);
        let decoded_tlbs = tlbs(&cpuid, "GenuineIntel");
        for (level, page_bytes, entries) in [(1, KIB_4, 16), (2, KIB_4, 256), (1, MIB_4, 16), (2, MIB_4, 32)] {
            assert!(
                decoded_tlbs.contains(&Tlb { level, kind: Data, page_bytes, entries, ways: 4 }),
                "{decoded_tlbs:?}"
            );
        }
        assert_eq!(decoded_tlbs.iter().filter(|tlb| tlb.kind == Data).count(), 4);
    }

    #[test]
    fn leaf_18h_overrides_descriptors() {
        let cpuid = recorded_cpuid(&[
            (0, 0, [0x1f, 0, 0, 0]),
            (2, 0, [0x00fe_ff01, 0xf0, 0, 0]),
            (0x18, 0, [1, 0, 0, 0]),
            (0x18, 1, [0, 0x0008_0003, 256, 0x43]),
        ]);
        assert_eq!(
            tlbs(&cpuid, "GenuineIntel"),
            [KIB_4, MIB_2].map(|page_bytes| Tlb { level: 2, kind: Unified, page_bytes, entries: 2048, ways: 8 })
        );
    }
}
