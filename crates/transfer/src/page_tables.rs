//! The page-table entries of what either end maps: a file at the sender, the window at the receiver; and what their bits mean.
//!
//! What an entry is before and after each access shows who made it. The processor marks it accessed and dirty, the kernel makes it no
//! stronger than the mapping.

use std::os::unix::fs::FileExt;

use kelvin_sys::kmod::{KernelSocket, KmodDevice, PageEntry};
use kelvin_sys::mapping::{FileMapping, memory_file, page_bytes};
use serde::{Serialize, Serializer};

use crate::{Error, Result};

/// When an entry was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessStage {
    /// Before anything was accessed.
    Untouched,
    /// After the module had received a byte into the page, which this process has not accessed.
    Received,
    /// After a byte was read.
    Read,
    /// After a byte was written.
    Written,
}

/// A number, in JSON in hexadecimal: JSON's numbers do not have this many digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hex(pub u64);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:#x}", self.0))
    }
}

/// An entry at one moment, without the number of its frame.
#[derive(Clone, Debug, Serialize)]
pub struct StagedEntry {
    /// When it was looked at.
    pub moment: AccessStage,
    /// Whether it maps memory.
    pub is_present: bool,
    /// Of the table that it is in: 1 is the last.
    pub level: u32,
    /// The bytes that it covers.
    pub bytes: u64,
    /// Its flags.
    pub flags: Hex,
    /// The names of the flags that are set.
    pub names: Vec<&'static str>,
}

/// What was seen at both ends.
#[derive(Clone, Debug, Serialize)]
pub struct PageTableEntries {
    /// A file in memory that the sender has mapped for reading: it cannot be written.
    pub sender: Vec<StagedEntry>,
    /// The receiver's window.
    pub receiver: Vec<StagedEntry>,
    /// Flags of both that were published: see [`Processor::published`].
    pub published: Option<[Hex; 2]>,
    /// The flags of the processor.
    pub bits: &'static [EntryBit],
}

impl PageTableEntries {
    /// Entries of the sender's and of the receiver's page, as a processor means them.
    pub fn new(
        processor: Processor,
        sender: Vec<(AccessStage, PageEntry)>,
        receiver: Vec<(AccessStage, PageEntry)>,
    ) -> Self {
        let to_staged_entry = |(moment, entry): (AccessStage, PageEntry)| {
            let PageEntry { entry, level, shift, is_present, .. } = entry;
            let flags = processor.flags(entry);
            let names = if is_present { bit_names(processor.bits, flags) } else { Vec::new() };
            StagedEntry { moment, is_present, level, bytes: 1 << shift, flags: Hex(flags), names }
        };
        let [sender, receiver] = [sender, receiver].map(|entries| entries.into_iter().map(to_staged_entry).collect());
        Self { sender, receiver, published: processor.published, bits: processor.bits }
    }
}

/// Looks at the pages of both ends, each by its own device, before and after they are accessed.
///
/// # Errors
/// No device; failed calls.
pub fn read_entries() -> Result<PageTableEntries> {
    let (sender, mut receiver) = (KernelSocket::open(KmodDevice::Sender)?, KernelSocket::open(KmodDevice::Receiver)?);
    let sender_pages = sender_entries(&sender).map_err(Error::call("read the sender's page"))?;
    let receiver_pages = receiver_entries((&sender, &mut receiver)).map_err(Error::call("read the receiver's page"))?;
    Ok(PageTableEntries::new(Processor::CURRENT, sender_pages, receiver_pages))
}

fn sender_entries(sender: &KernelSocket) -> std::io::Result<Vec<(AccessStage, PageEntry)>> {
    let file = memory_file()?;
    file.write_all_at(&vec![b'k'; page_bytes()], 0)?;
    let mapping = FileMapping::whole(&file, page_bytes())?;
    let untouched = sender.page_entry(mapping.address())?;
    mapping.read(0, 1, 1);
    Ok(vec![(AccessStage::Untouched, untouched), (AccessStage::Read, sender.page_entry(mapping.address())?)])
}

/// A byte is received into it first, while the processor has no entry for it.
fn receiver_entries(
    (sender, receiver): (&KernelSocket, &mut KernelSocket),
) -> std::io::Result<Vec<(AccessStage, PageEntry)>> {
    sender.connect(receiver.listen((std::net::Ipv4Addr::LOCALHOST, 0).into())?)?;
    receiver.accept()?;
    receiver.set_window(page_bytes())?;
    let mut entries = Vec::new();
    let mut record_entry = |moment, socket: &KernelSocket| {
        let entry = socket.page_entry(socket.window().as_ptr() as usize);
        entry.map(|entry| entries.push((moment, entry)))
    };
    record_entry(AccessStage::Untouched, receiver)?;
    std::io::Write::write_all(&mut { sender }, b"k")?;
    receiver.receive(0..1)?;
    record_entry(AccessStage::Received, receiver)?;
    if std::hint::black_box(receiver.window()[0]) != b'k' {
        return Err(std::io::Error::other("another byte arrived than was sent"));
    }
    record_entry(AccessStage::Read, receiver)?;
    std::hint::black_box(receiver.window_mut())[0] = b'l';
    record_entry(AccessStage::Written, receiver)?;
    Ok(entries)
}

/// A processor whose entries are understood.
#[derive(Clone, Copy, Debug)]
pub struct Processor {
    /// Its bits, the lowest first.
    pub bits: &'static [EntryBit],
    /// The entries that the study kernel-transfer-2020 printed, without frame numbers: of the sender's page, and of the
    /// receiver's. Its machine was an x86-64.
    pub published: Option<[Hex; 2]>,
    /// Bits of the frame's number.
    frame: u64,
}

impl Processor {
    /// x86-64: Intel's manual, volume 3, table 4-20.
    pub const X86: Self = Self {
        bits: X86_BITS,
        published: Some([Hex(0x8000_0000_0000_0025), Hex(0x8000_0000_0000_0067)]),
        frame: 0x000f_ffff_ffff_f000,
    };
    /// aarch64: Arm's manual, D8.3, bits 12 to 49, as Linux uses them.
    pub const ARM: Self = Self { bits: ARM_BITS, published: None, frame: 0x0003_ffff_ffff_f000 };
    /// This one.
    pub const CURRENT: Self = if cfg!(target_arch = "aarch64") { Self::ARM } else { Self::X86 };

    /// Which bits of an entry are flags, and not its frame.
    pub fn flags(self, entry: u64) -> u64 {
        entry & !self.frame
    }
}

/// A bit of an entry, or several that go together.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct EntryBit {
    /// The mask of all of them.
    pub mask: Hex,
    /// What it is called.
    pub name: &'static str,
    /// Why it is as it is in the entries of a sender and of a receiver.
    #[serde(rename = "meaning")]
    pub why: &'static str,
}

const fn entry_bit(number: u32, name: &'static str, why: &'static str) -> EntryBit {
    EntryBit { mask: Hex(1 << number), name, why }
}

/// `arch/x86/include/asm/pgtable_types.h`.
const X86_BITS: &[EntryBit] = &[
    entry_bit(0, "present", "the first access faulted, and the kernel made the entry"),
    entry_bit(1, "writable", "as mapped: the file for reading, the window for writing too"),
    entry_bit(2, "user", "both are memory of a process, which user mode may use"),
    EntryBit { mask: Hex(0x18), name: "uncached", why: "it is memory, which the processor caches as usual" },
    entry_bit(5, "accessed", "marked used by the access that made it, or by the processor since"),
    entry_bit(6, "dirty", "set by the processor at the first write through this entry"),
    entry_bit(7, "huge", "at the last level not that, but how the page is cached (PAT)"),
    entry_bit(8, "global", "only the kernel's own entries outlive a switch of address spaces"),
    EntryBit { mask: Hex(0x600), name: "software", why: "left to the kernel, which has no use for them here" },
    entry_bit(11, "soft-dirty", "noted by the kernel where it makes an entry for a write"),
    entry_bit(63, "no-execute", "neither is mapped to be executed"),
];

/// `arch/arm64/include/asm/pgtable-hwdef.h` and `pgtable-prot.h`.
const ARM_BITS: &[EntryBit] = &[
    entry_bit(0, "present", "the first access faulted, and the kernel made the entry"),
    entry_bit(6, "user", "both are memory of a process, which user mode may use"),
    entry_bit(7, "read-only", "as mapped, or not yet written"),
    entry_bit(10, "accessed", "marked used by the access that made it, or by the processor since"),
    entry_bit(51, "writable", "as mapped: read-only may be taken back at a write (DBM)"),
    entry_bit(53, "no-execute in the kernel", "the kernel executes no memory of a process"),
    entry_bit(54, "no-execute", "neither is mapped to be executed"),
    entry_bit(55, "dirty", "noted by the kernel at a write"),
];

/// The names of the bits that are set.
pub fn bit_names(bits: &[EntryBit], entry: u64) -> Vec<&'static str> {
    bits.iter().filter(|bit| entry & bit.mask.0 != 0).map(|bit| bit.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_entries_decode() {
        let [Hex(sender), Hex(receiver)] = Processor::X86.published.unwrap();
        assert_eq!(bit_names(X86_BITS, sender), ["present", "user", "accessed", "no-execute"]);
        assert_eq!(bit_names(X86_BITS, receiver), ["present", "writable", "user", "accessed", "dirty", "no-execute"]);
        assert_eq!(bit_names(X86_BITS, 0x867), ["present", "writable", "user", "accessed", "dirty", "soft-dirty"]);
        assert_eq!(bit_names(ARM_BITS, 1 << 55 | 0x401), ["present", "accessed", "dirty"]);
    }

    #[test]
    fn bits_are_disjoint_and_exclude_frame() {
        assert_eq!(Processor::X86.flags(0x8000_0001_2345_6867), 0x8000_0000_0000_0867);
        assert_eq!(Processor::ARM.flags(0x0068_0001_2345_6f43), 0x0068_0000_0000_0f43);
        for processor in [Processor::X86, Processor::ARM] {
            let mut assigned_bits = 0;
            for bit in processor.bits {
                let Hex(mask) = bit.mask;
                assert_eq!((assigned_bits & mask, processor.flags(mask)), (0, mask), "{}", bit.name);
                assigned_bits |= mask;
            }
        }
    }
}
