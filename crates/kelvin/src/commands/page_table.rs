//! `kelvin study page`: the page-table entries of what a sender and a receiver map, bit by bit.

use std::io::{self, Write};

use kelvin_sys::kmod::PageEntry;
use kelvin_transfer::Error;
use kelvin_transfer::page_tables::{
    AccessStage, EntryBit, PageTableEntries, Processor, StagedEntry, bit_names, read_entries,
};
use serde::Serialize;

use crate::cli::StudyArgs;
use crate::cli_error::CliError;
use crate::output;

/// What it is called.
pub const STUDY_NAME: &str = "page";

/// Looks, and prints what was seen. Nothing is stored: no value of it is a measurement.
pub fn page_table(args: &StudyArgs) -> Result<(), CliError> {
    let looks = read_entries().map_err(|error| match error {
        Error::Device(why) => CliError::new("study page needs the kernel module", why),
        error => CliError::new("study page", error),
    })?;
    let report = PageTableReport::new(&looks, Processor::CURRENT);
    output::print_answer(args.to.json, &report, |out| write_text(out, &looks, Processor::CURRENT))
}

/// An entry as data.
#[derive(Serialize)]
struct EntryReport {
    moment: AccessStage,
    is_present: bool,
    level: u32,
    bytes: u64,
    /// In hexadecimal: JSON's numbers do not have this many digits.
    flags: String,
    names: Vec<&'static str>,
}

impl EntryReport {
    fn new((moment, entry): &StagedEntry, processor: Processor) -> Self {
        let PageEntry { entry, level, shift, is_present, .. } = *entry;
        let flags = processor.flags(entry);
        let names = if is_present { bit_names(processor, flags) } else { Vec::new() };
        Self { moment: *moment, is_present, level, bytes: 1 << shift, flags: format!("{flags:#x}"), names }
    }
}

#[derive(Serialize)]
struct PageTableReport {
    sender: Vec<EntryReport>,
    receiver: Vec<EntryReport>,
    published: Option<[String; 2]>,
    bits: Vec<FlagBit>,
}

/// A bit as data.
#[derive(Serialize)]
struct FlagBit {
    mask: String,
    name: &'static str,
    meaning: &'static str,
}

impl PageTableReport {
    fn new(looks: &PageTableEntries, processor: Processor) -> Self {
        let bit = |&EntryBit { mask, name, why }: &EntryBit| FlagBit { mask: format!("{mask:#x}"), name, meaning: why };
        let entries = |looks: &[StagedEntry]| looks.iter().map(|look| EntryReport::new(look, processor)).collect();
        Self {
            sender: entries(&looks.sender),
            receiver: entries(&looks.receiver),
            published: processor
                .published
                .map(|(sender, receiver)| [sender, receiver].map(|entry| format!("{entry:#x}"))),
            bits: processor.bits.iter().map(bit).collect(),
        }
    }
}

fn write_text(out: &mut dyn Write, looks: &PageTableEntries, processor: Processor) -> io::Result<()> {
    write_entries(out, "The sender's page: a file, mapped for reading", (&looks.sender, processor))?;
    writeln!(out, "  {:14} not possible: the mapping does not allow it", moment_text(AccessStage::Written))?;
    write_entries(out, "\nThe receiver's page: its device's window", (&looks.receiver, processor))?;
    writeln!(out, "  (what the module receives it writes by the kernel's own mapping)")?;
    writeln!(out, "\nBit by bit:")?;
    let entries = compared_columns(looks, processor);
    let heads: Vec<&str> = entries.iter().map(|(head, _)| *head).collect();
    writeln!(out, "{:>18}  {:24}  {}", "value", "name", heads.join("  "))?;
    for bit in processor.bits {
        let marks = entries.iter().map(|(head, entry)| {
            format!("{:>width$}", if entry & bit.mask == 0 { "-" } else { "yes" }, width = head.len())
        });
        writeln!(out, "{:#18x}  {:24}  {}", bit.mask, bit.name, marks.collect::<Vec<_>>().join("  "))?;
    }
    writeln!(out, "\nWhy:")?;
    for bit in processor.bits {
        writeln!(out, "  {}: {}", bit.name, bit.why)?;
    }
    processor.published.map_or(Ok(()), |published| write_published(out, looks, (processor, published)))
}

fn write_entries(out: &mut dyn Write, title: &str, (looks, processor): (&[StagedEntry], Processor)) -> io::Result<()> {
    writeln!(out, "{title}")?;
    for look in looks {
        let moment = moment_text(look.0);
        let EntryReport { is_present, level, flags, .. } = EntryReport::new(look, processor);
        if is_present {
            writeln!(out, "  {moment:14} {flags}")?;
        } else {
            writeln!(out, "  {moment:14} no entry in the table of level {level}: an access would fault")?;
        }
    }
    Ok(())
}

fn moment_text(moment: AccessStage) -> &'static str {
    match moment {
        AccessStage::Untouched => "before touch",
        AccessStage::Received => "received into",
        AccessStage::Read => "after a read",
        AccessStage::Written => "after a write",
    }
}

/// The flags at a moment.
fn flags_at(looks: &[StagedEntry], moment: AccessStage, processor: Processor) -> u64 {
    looks.iter().find(|look| look.0 == moment).map_or(0, |look| processor.flags(look.1.entry))
}

/// The entries that are set side by side.
fn compared_columns(looks: &PageTableEntries, processor: Processor) -> [(&'static str, u64); 3] {
    [
        ("sender", flags_at(&looks.sender, AccessStage::Read, processor)),
        ("receiver, read", flags_at(&looks.receiver, AccessStage::Read, processor)),
        ("written", flags_at(&looks.receiver, AccessStage::Written, processor)),
    ]
}

/// What the published study printed, and whether it is the same here.
fn write_published(
    out: &mut dyn Write,
    looks: &PageTableEntries,
    (processor, (sender, receiver)): (Processor, (u64, u64)),
) -> io::Result<()> {
    writeln!(out, "\nBeside the study kernel-transfer-2020:")?;
    let [(_, read), _, (_, written)] = compared_columns(looks, processor);
    for (end, here, published) in [("sender", read, sender), ("receiver", written, receiver)] {
        let difference = here ^ published;
        let judged = match difference {
            0 => "the same here".to_owned(),
            _ => format!("{here:#x} here: other in {}", bit_names(processor, difference).join(", ")),
        };
        writeln!(out, "  {end:8} {published:#x}: {judged}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(entry: u64) -> PageEntry {
        PageEntry { entry, level: 1, shift: 12, is_mapped: true, is_present: entry & 1 == 1, has_frame: false }
    }

    fn looks(written: u64) -> PageTableEntries {
        let read = 0x8000_0000_1234_5027;
        PageTableEntries {
            sender: vec![(AccessStage::Untouched, entry(0)), (AccessStage::Read, entry(0x8000_0000_0765_4025))],
            receiver: vec![
                (AccessStage::Untouched, entry(0)),
                (AccessStage::Received, entry(0)),
                (AccessStage::Read, entry(read)),
                (AccessStage::Written, entry(written)),
            ],
        }
    }

    fn page_table_text(looks: &PageTableEntries) -> String {
        let mut out = Vec::new();
        write_text(&mut out, looks, Processor::X86).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn entries_are_decoded_without_frame_numbers() {
        let text = page_table_text(&looks(0x8000_0000_1234_5067));
        for line in [
            "  before touch   no entry in the table of level 1: an access would fault",
            "  after a read   0x8000000000000025",
            "  after a write  0x8000000000000067",
            "                 value  name                      sender  receiver, read  written",
            "               0x2  writable                       -             yes      yes",
            "              0x40  dirty                          -               -      yes",
            "  sender   0x8000000000000025: the same here",
            "  receiver 0x8000000000000067: the same here",
        ] {
            assert!(text.lines().any(|one| one.trim_start() == line.trim_start()), "{line}\n{text}");
        }
    }

    #[test]
    fn text_fits_80_columns() {
        let texts = [Processor::X86, Processor::ARM].map(|processor| {
            let mut out = Vec::new();
            write_text(&mut out, &looks(0x67), processor).unwrap();
            String::from_utf8(out).unwrap()
        });
        let wide: Vec<&str> = texts.iter().flat_map(|text| text.lines()).filter(|line| line.len() > 80).collect();
        assert!(wide.is_empty(), "{wide:#?}");
    }

    #[test]
    fn difference_to_published_is_named() {
        let text = page_table_text(&looks(0x8000_0000_0000_0867));
        assert!(text.contains("0x8000000000000867 here: other in soft-dirty"), "{text}");
        let answer = serde_json::to_value(PageTableReport::new(&looks(0x67), Processor::X86)).unwrap();
        assert_eq!(answer["receiver"][3]["flags"], "0x67");
        assert_eq!(answer["sender"][0]["is_present"], false);
        assert_eq!(answer["published"][0], "0x8000000000000025");
    }
}
