//! Facts of main memory, from /proc/meminfo, sysfs and what states its modules.

use kelvin_core::{Fact, Memory, Name};

use crate::edac::Edac;
use crate::memory_modules::ModuleSources;
use crate::root::{FileRoot, bracketed_word, value_of_key};
use crate::smbios::Smbios;

/// Where the kernel counts its memory.
pub const MEMINFO: &str = "/proc/meminfo";
const HUGE_PAGES_DIRECTORY: &str = "/sys/kernel/mm/hugepages";
/// Key of the page size in the auxiliary vector (`linux/auxvec.h`).
const AT_PAGESZ: u64 = 6;

pub(crate) fn read(root: FileRoot<'_>, architecture: Name, smbios: &Result<Smbios, String>) -> Memory {
    let meminfo = |key: &'static str| root.line_fact(MEMINFO, key, kibibytes);
    let modules = ModuleSources { table: smbios, edac: Edac::read(root) };
    Memory {
        total_bytes: meminfo("MemTotal"),
        available_bytes: meminfo("MemAvailable"),
        swap_bytes: meminfo("SwapTotal"),
        page_bytes: page_bytes(root, architecture),
        huge_page_bytes: huge_pages(root),
        transparent_huge_pages: root
            .fact("/sys/kernel/mm/transparent_hugepage/enabled", |text| bracketed_word(text).map(str::to_owned)),
        kind: modules.kind(),
        transfers_per_second: modules.transfers_per_second(),
        modules: modules.modules(),
        channels: modules.channels(),
        peak_bytes_per_second: modules.peak_bytes_per_second(),
    }
}

/// A line of /proc/meminfo or of a process's status, in bytes.
pub fn kibibytes(text: &str, key: &str) -> Option<u64> {
    value_of_key(text, key, ':')?.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn page_bytes(root: FileRoot<'_>, architecture: Name) -> Fact<u64> {
    const VECTOR: &str = "/proc/self/auxv";
    match root.bytes(VECTOR).map(|bytes| page_size_entry(&bytes)) {
        Ok(Some(bytes)) => Fact::known(bytes, VECTOR),
        _ if architecture == "x86_64" => Fact::known(4096, "x86-64 has one base page size"),
        _ if architecture == "s390x" => Fact::known(4096, "s390x has one base page size"),
        Ok(None) => Fact::unknown(format!("{VECTOR} has no page size")),
        Err(reason) => Fact::unknown(reason),
    }
}

/// The page size in an auxiliary vector of 64-bit little-endian pairs.
fn page_size_entry(vector: &[u8]) -> Option<u64> {
    let word = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
    let entries = vector.chunks_exact(16).map(|pair| Some((word(&pair[..8])?, word(&pair[8..])?)));
    entries.flatten().find(|entry| entry.0 == AT_PAGESZ).map(|entry| entry.1).filter(|bytes| bytes.is_power_of_two())
}

fn huge_pages(root: FileRoot<'_>) -> Fact<Vec<u64>> {
    if !root.exists(HUGE_PAGES_DIRECTORY) {
        return Fact::unknown(format!(
            "there is no {HUGE_PAGES_DIRECTORY}: {}",
            root.absence_reason(HUGE_PAGES_DIRECTORY, "the kernel is built without huge pages")
        ));
    }
    // `hugepages-2048kB`
    let size =
        |name: &String| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok()?.checked_mul(1024);
    let mut sizes: Vec<u64> = root.names(HUGE_PAGES_DIRECTORY).iter().filter_map(size).collect();
    sizes.sort_unstable();
    Fact::known(sizes, HUGE_PAGES_DIRECTORY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_lines_are_parsed() {
        let text = "MemTotal:       24684092 kB\nHugePages_Total:       0\nSwapTotal: 18446744073709551615 kB\n";
        assert_eq!(kibibytes(text, "MemTotal"), Some(24_684_092 * 1024));
        assert_eq!(kibibytes(text, "HugePages_Total"), None);
        assert_eq!(kibibytes(text, "SwapTotal"), None);
    }

    #[test]
    fn page_size_is_read_from_auxv() {
        let mut vector = Vec::new();
        for word in [33_u64, 7, 6, 65_536, 0, 0] {
            vector.extend(word.to_le_bytes());
        }
        assert_eq!(page_size_entry(&vector), Some(65_536));
        assert_eq!(page_size_entry(&vector[..16]), None);
        assert_eq!(page_size_entry(&[6]), None);
    }
}
