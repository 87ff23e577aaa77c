//! Answers of the cpuid instruction, from this processor or a recorded tree.

use std::collections::BTreeMap;

use crate::root::FileRoot;

/// The file of a recorded tree with the answers: `leaf subleaf eax ebx ecx edx`, hexadecimal, one answer a line.
pub(crate) const RECORD_FILE: &str = "cpuid.txt";

/// The source of answers.
#[derive(Clone, Debug)]
pub(crate) enum Cpuid {
    /// The processor, on the CPU of this number.
    Live(u32),
    /// A record.
    Recorded(BTreeMap<(u32, u32), [u32; 4]>),
    /// None, with the reason.
    Unavailable(String),
}

impl Cpuid {
    /// Of the CPU that is measured.
    pub(crate) fn new(root: FileRoot<'_>, cpu: u32) -> Self {
        if root.is_live() {
            return match kelvin_sys::cpuid::leaf_of_cpu(cpu, 0, 0) {
                Ok(Some(_)) => Self::Live(cpu),
                Ok(None) => Self::Unavailable("this architecture has no cpuid instruction".into()),
                Err(error) => Self::Unavailable(format!("cpuid cannot be used on CPU {cpu}: {error}")),
            };
        }
        match root.text(RECORD_FILE) {
            Some(text) => Self::Recorded(text.lines().filter_map(parse_record_line).collect()),
            None => Self::Unavailable("the recorded tree has no cpuid".into()),
        }
    }

    /// The registers `[eax, ebx, ecx, edx]` of a leaf, if the processor has it.
    pub(crate) fn leaf(&self, leaf: u32, subleaf: u32) -> Option<[u32; 4]> {
        // The first leaf of each range states its highest; leaves above it return something else.
        let base = leaf & 0xf000_0000;
        let max_leaf = self.query(base, 0)?[0];
        let exists = leaf <= max_leaf && (base == 0 || max_leaf & 0xf000_0000 == base);
        if exists { self.query(leaf, subleaf) } else { None }
    }

    fn query(&self, leaf: u32, subleaf: u32) -> Option<[u32; 4]> {
        match self {
            Self::Live(cpu) => kelvin_sys::cpuid::leaf_of_cpu(*cpu, leaf, subleaf).ok()?,
            Self::Recorded(answers) => answers.get(&(leaf, subleaf)).copied(),
            Self::Unavailable(_) => None,
        }
    }

    /// Why a leaf has no answer.
    pub(crate) fn unavailable_reason(&self, leaf: &str) -> String {
        match self {
            Self::Unavailable(reason) => reason.clone(),
            _ => format!("cpuid leaf {leaf} is absent or empty"),
        }
    }

    /// Whether this is a guest of a hypervisor (leaf 1, ECX bit 31, reserved for this by both vendors).
    pub(crate) fn hypervisor_bit(&self) -> Option<bool> {
        self.leaf(1, 0).map(|[_, _, c, _]| c >> 31 == 1)
    }

    /// The twelve letters by which a hypervisor names itself (leaf 4000_0000h).
    pub(crate) fn hypervisor_signature(&self) -> Option<String> {
        if self.hypervisor_bit() != Some(true) {
            return None;
        }
        let [_, b, c, d] = self.query(0x4000_0000, 0)?;
        let bytes: Vec<u8> = [b, c, d].iter().flat_map(|register| register.to_le_bytes()).collect();
        let text = String::from_utf8_lossy(&bytes).trim_matches(['\0', ' ']).to_owned();
        (!text.is_empty()).then_some(text)
    }
}

/// One line of a record.
fn parse_record_line(line: &str) -> Option<((u32, u32), [u32; 4])> {
    let words: Vec<u32> =
        line.split_ascii_whitespace().map(|word| u32::from_str_radix(word, 16)).collect::<Result<_, _>>().ok()?;
    match words[..] {
        [leaf, subleaf, a, b, c, d] => Some(((leaf, subleaf), [a, b, c, d])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_above_maximum_are_not_queried() {
        let line = "0 0 16 756e6547 6c65746e 49656e69\n16 0 a28 0 0 0\n18 0 1 2 3 4\n40000000 0 0 0 0 0";
        let cpuid = Cpuid::Recorded(line.lines().filter_map(parse_record_line).collect());
        assert_eq!(cpuid.leaf(0x16, 0), Some([0xa28, 0, 0, 0]));
        assert_eq!(cpuid.leaf(0x18, 0), None);
        assert_eq!(cpuid.leaf(0x8000_0007, 0), None);
        assert_eq!(cpuid.hypervisor_bit(), None);
    }

    #[test]
    fn malformed_record_lines_are_skipped() {
        assert_eq!(parse_record_line("1 0 2 3 4 5"), Some(((1, 0), [2, 3, 4, 5])));
        assert_eq!(parse_record_line("1 0 2 3 4"), None);
        assert_eq!(parse_record_line("zz 0 2 3 4 5"), None);
    }
}
