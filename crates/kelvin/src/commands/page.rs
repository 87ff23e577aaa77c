//! `kelvin study page`: the page-table entries of what a sender and a receiver map, bit by bit.

use std::io::{self, Write};
use std::process::ExitCode;

use kelvin_sys::kernel_end::PageEntry;
use kelvin_transfer::Error;
use kelvin_transfer::page::{Bit, Look, Looks, Moment, Processor, look, names};
use serde::Serialize;

use crate::cli::StudyArgs;
use crate::fault::{Done, Fault};
use crate::output;

/// What it is called.
pub const NAME: &str = "page";

/// Looks, and prints what was seen. Nothing is stored: no value of it is a measurement.
pub fn page(args: &StudyArgs) -> Done {
    let looks = look().map_err(|error| match error {
        Error::Device(why) => Fault::new("study page needs the kernel module", why),
        error => Fault::new("study page", error),
    })?;
    if args.to.json {
        output::print_json(&Answer::of(&looks, Processor::HERE))?;
    } else {
        output::print(|out| write(out, &looks, Processor::HERE))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// An entry as data.
#[derive(Serialize)]
struct Entry {
    moment: Moment,
    is_present: bool,
    level: u32,
    bytes: u64,
    /// In hexadecimal: JSON's numbers do not have so many digits.
    flags: String,
    names: Vec<&'static str>,
}

impl Entry {
    fn of((moment, entry): &Look, processor: Processor) -> Self {
        let PageEntry { entry, level, shift, is_present, .. } = *entry;
        let flags = processor.flags(entry);
        let names = if is_present { names(processor, flags) } else { Vec::new() };
        Self { moment: *moment, is_present, level, bytes: 1 << shift, flags: format!("{flags:#x}"), names }
    }
}

#[derive(Serialize)]
struct Answer {
    sender: Vec<Entry>,
    receiver: Vec<Entry>,
    published: Option<[String; 2]>,
    bits: Vec<BitSaid>,
}

/// A bit as data.
#[derive(Serialize)]
struct BitSaid {
    mask: String,
    name: &'static str,
    why: &'static str,
}

impl From<&Bit> for BitSaid {
    fn from(&Bit { mask, name, why }: &Bit) -> Self {
        Self { mask: format!("{mask:#x}"), name, why }
    }
}

impl Answer {
    fn of(looks: &Looks, processor: Processor) -> Self {
        let entries = |looks: &[Look]| looks.iter().map(|look| Entry::of(look, processor)).collect();
        Self {
            sender: entries(&looks.sender),
            receiver: entries(&looks.receiver),
            published: processor
                .published()
                .map(|(sender, receiver)| [sender, receiver].map(|entry| format!("{entry:#x}"))),
            bits: processor.bits().iter().map(BitSaid::from).collect(),
        }
    }
}

fn write(out: &mut dyn Write, looks: &Looks, processor: Processor) -> io::Result<()> {
    write_looks(out, "The sender's page: a file, mapped for reading", (&looks.sender, processor))?;
    writeln!(out, "  {:14} not possible: the mapping does not allow it", in_words(Moment::Written))?;
    write_looks(out, "\nThe receiver's page: its device's window", (&looks.receiver, processor))?;
    writeln!(out, "  (what the module receives it writes by the kernel's own mapping)")?;
    writeln!(out, "\nBit by bit:")?;
    let entries = columns(looks, processor);
    let heads: Vec<&str> = entries.iter().map(|(head, _)| *head).collect();
    writeln!(out, "{:>18}  {:24}  {}", "value", "name", heads.join("  "))?;
    for bit in processor.bits() {
        let marks = entries.iter().map(|(head, entry)| {
            format!("{:>width$}", if entry & bit.mask == 0 { "-" } else { "yes" }, width = head.len())
        });
        writeln!(out, "{:#18x}  {:24}  {}", bit.mask, bit.name, marks.collect::<Vec<_>>().join("  "))?;
    }
    writeln!(out, "\nWhy:")?;
    for bit in processor.bits() {
        writeln!(out, "  {}: {}", bit.name, bit.why)?;
    }
    processor.published().map_or(Ok(()), |published| write_beside(out, looks, (processor, published)))
}

fn write_looks(out: &mut dyn Write, title: &str, (looks, processor): (&[Look], Processor)) -> io::Result<()> {
    writeln!(out, "{title}")?;
    for look in looks {
        let moment = in_words(look.0);
        let Entry { is_present, level, flags, .. } = Entry::of(look, processor);
        if is_present {
            writeln!(out, "  {moment:14} {flags}")?;
        } else {
            writeln!(out, "  {moment:14} no entry in the table of level {level}: an access would fault")?;
        }
    }
    Ok(())
}

fn in_words(moment: Moment) -> &'static str {
    match moment {
        Moment::Untouched => "before touch",
        Moment::Received => "received into",
        Moment::Read => "after a read",
        Moment::Written => "after a write",
    }
}

/// The flags at a moment.
fn at(looks: &[Look], moment: Moment, processor: Processor) -> u64 {
    looks.iter().find(|look| look.0 == moment).map_or(0, |look| processor.flags(look.1.entry))
}

/// The entries that are set side by side.
fn columns(looks: &Looks, processor: Processor) -> [(&'static str, u64); 3] {
    [
        ("sender", at(&looks.sender, Moment::Read, processor)),
        ("receiver, read", at(&looks.receiver, Moment::Read, processor)),
        ("written", at(&looks.receiver, Moment::Written, processor)),
    ]
}

/// What the published study printed, and whether it is the same here.
fn write_beside(
    out: &mut dyn Write,
    looks: &Looks,
    (processor, (sender, receiver)): (Processor, (u64, u64)),
) -> io::Result<()> {
    writeln!(out, "\nBeside the study kernel-transfer-2020:")?;
    let [(_, read), _, (_, written)] = columns(looks, processor);
    for (end, here, published) in [("sender", read, sender), ("receiver", written, receiver)] {
        let difference = here ^ published;
        let judged = match difference {
            0 => "the same here".to_owned(),
            _ => format!("{here:#x} here: other in {}", names(processor, difference).join(", ")),
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

    fn looks(written: u64) -> Looks {
        let read = 0x8000_0000_1234_5027;
        Looks {
            sender: vec![(Moment::Untouched, entry(0)), (Moment::Read, entry(0x8000_0000_0765_4025))],
            receiver: vec![
                (Moment::Untouched, entry(0)),
                (Moment::Received, entry(0)),
                (Moment::Read, entry(read)),
                (Moment::Written, entry(written)),
            ],
        }
    }

    fn written(looks: &Looks) -> String {
        let mut out = Vec::new();
        write(&mut out, looks, Processor::X86).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_entry_is_told_without_its_frame_and_bit_by_bit_beside_the_published_ones() {
        let text = written(&looks(0x8000_0000_1234_5067));
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
    fn it_fits_eighty_columns() {
        let texts = [Processor::X86, Processor::Arm].map(|processor| {
            let mut out = Vec::new();
            write(&mut out, &looks(0x67), processor).unwrap();
            String::from_utf8(out).unwrap()
        });
        let wide: Vec<&str> = texts.iter().flat_map(|text| text.lines()).filter(|line| line.len() > 80).collect();
        assert!(wide.is_empty(), "{wide:#?}");
    }

    #[test]
    fn a_difference_is_named() {
        let text = written(&looks(0x8000_0000_0000_0867));
        assert!(text.contains("0x8000000000000867 here: other in soft-dirty"), "{text}");
        let answer = serde_json::to_value(Answer::of(&looks(0x67), Processor::X86)).unwrap();
        assert_eq!(answer["receiver"][3]["flags"], "0x67");
        assert_eq!(answer["sender"][0]["is_present"], false);
        assert_eq!(answer["published"][0], "0x8000000000000025");
    }
}
