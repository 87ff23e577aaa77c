//! `kelvin study page`: the page-table entries of what a sender and a receiver map, bit by bit.

use std::io::{self, Write};
use std::path::Path;

use kelvin_core::json;
use kelvin_transfer::Error;
use kelvin_transfer::page_tables::{
    AccessStage, EntryBit, Hex, PageTableEntries, StagedEntry, bit_names, read_entries,
};

use crate::cli::{ReportFormat, StudyArgs};
use crate::cli_error::CliError;
use crate::output::{self, Outlet};

/// Reads the entries, prints them, and writes the files that were named. Nothing is stored: no value of it is a measurement.
pub fn page_table(args: &StudyArgs) -> Result<(), CliError> {
    let find_file = |(format, path): (ReportFormat, &Path)| match format {
        ReportFormat::Json | ReportFormat::Terminal => Ok((format == ReportFormat::Json, Outlet::find(Some(path))?)),
        _ => Err(CliError::msg(format_args!(
            "--output {}: page-table entries are text or JSON: give a name that ends in .json or .txt",
            path.display()
        ))),
    };
    let files = args.to.reports().map(find_file).collect::<Result<Vec<(bool, Outlet)>, CliError>>()?;
    let entries = read_entries().map_err(|error| match error {
        Error::Device(reason) => CliError::new("study page needs the kernel module", reason),
        error => CliError::new("study page", error),
    })?;
    if args.to.json {
        output::print_json(&entries)?
    } else {
        output::print(|out| write_text(out, &entries))?
    }
    files.into_iter().try_for_each(|(is_json, file)| {
        file.write_output(false, |out| match is_json {
            true => writeln!(out, "{}", json::to_string_pretty(&entries)?),
            false => write_text(out, &entries),
        })
    })
}

fn write_text(out: &mut dyn Write, entries: &PageTableEntries) -> io::Result<()> {
    let PageTableEntries { sender, receiver, published, bits } = entries;
    write_entries(out, "The sender's page: a file, mapped for reading", sender)?;
    writeln!(out, "  {:14} not possible: the mapping does not allow it", moment_text(AccessStage::Written))?;
    write_entries(out, "\nThe receiver's page: its device's window", receiver)?;
    writeln!(out, "  (what the module receives it writes by the kernel's own mapping)")?;
    writeln!(out, "\nBit by bit:")?;
    let flags_at = |entries: &[StagedEntry], moment: AccessStage| {
        entries.iter().find(|entry| entry.moment == moment).map_or(0, |entry| entry.flags.0)
    };
    let sender_read = flags_at(sender, AccessStage::Read);
    let [read, written] = [AccessStage::Read, AccessStage::Written].map(|moment| flags_at(receiver, moment));
    let columns = [("sender", sender_read), ("receiver, read", read), ("written", written)];
    writeln!(out, "{:>18}  {:24}  {}", "value", "name", columns.map(|(head, _)| head).join("  "))?;
    for EntryBit { mask: Hex(mask), name, .. } in *bits {
        let mark = |(head, flags): (&str, u64)| {
            format!("{:>width$}", if flags & mask == 0 { "-" } else { "yes" }, width = head.len())
        };
        writeln!(out, "{mask:#18x}  {name:24}  {}", columns.map(mark).join("  "))?;
    }
    writeln!(out, "\nWhy:")?;
    bits.iter().try_for_each(|EntryBit { name, why, .. }| writeln!(out, "  {name}: {why}"))?;
    let Some([Hex(published_sender), Hex(published_receiver)]) = *published else { return Ok(()) };
    // What the published study printed, and whether it is the same here.
    writeln!(out, "\nNext to the study kernel-transfer-2020:")?;
    for (end, flags, published) in
        [("sender", sender_read, published_sender), ("receiver", written, published_receiver)]
    {
        let verdict = match flags ^ published {
            0 => "the same here".to_owned(),
            difference => format!("{flags:#x} here: other in {}", bit_names(bits, difference).join(", ")),
        };
        writeln!(out, "  {end:8} {published:#x}: {verdict}")?;
    }
    Ok(())
}

fn write_entries(out: &mut dyn Write, title: &str, entries: &[StagedEntry]) -> io::Result<()> {
    writeln!(out, "{title}")?;
    entries.iter().try_for_each(|StagedEntry { moment, is_present, level, flags: Hex(flags), .. }| {
        let moment = moment_text(*moment);
        match is_present {
            true => writeln!(out, "  {moment:14} {flags:#x}"),
            false => writeln!(out, "  {moment:14} no entry in the table of level {level}: an access would fault"),
        }
    })
}

fn moment_text(moment: AccessStage) -> &'static str {
    match moment {
        AccessStage::Untouched => "before touch",
        AccessStage::Received => "received into",
        AccessStage::Read => "after a read",
        AccessStage::Written => "after a write",
    }
}

#[cfg(test)]
mod tests {
    use kelvin_sys::kmod::PageEntry;
    use kelvin_transfer::page_tables::Processor;

    use super::*;

    fn entry(entry: u64) -> PageEntry {
        PageEntry { entry, level: 1, shift: 12, is_mapped: true, is_present: entry & 1 == 1, has_frame: false }
    }

    fn entries(processor: Processor, written: u64) -> PageTableEntries {
        let read = 0x8000_0000_1234_5027;
        let sender = vec![(AccessStage::Untouched, entry(0)), (AccessStage::Read, entry(0x8000_0000_0765_4025))];
        let receiver = vec![
            (AccessStage::Untouched, entry(0)),
            (AccessStage::Received, entry(0)),
            (AccessStage::Read, entry(read)),
            (AccessStage::Written, entry(written)),
        ];
        PageTableEntries::new(processor, sender, receiver)
    }

    fn page_table_text(entries: &PageTableEntries) -> String {
        let mut out = Vec::new();
        write_text(&mut out, entries).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn entries_are_decoded_without_frame_numbers() {
        let text = page_table_text(&entries(Processor::X86, 0x8000_0000_1234_5067));
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
            assert!(text.lines().any(|output_line| output_line.trim_start() == line.trim_start()), "{line}\n{text}");
        }
    }

    #[test]
    fn text_fits_80_columns() {
        let texts = [Processor::X86, Processor::ARM].map(|processor| {
            let mut out = Vec::new();
            write_text(&mut out, &entries(processor, 0x67)).unwrap();
            String::from_utf8(out).unwrap()
        });
        let wide_lines: Vec<&str> = texts.iter().flat_map(|text| text.lines()).filter(|line| line.len() > 80).collect();
        assert!(wide_lines.is_empty(), "{wide_lines:#?}");
    }

    #[test]
    fn difference_to_published_is_named() {
        let text = page_table_text(&entries(Processor::X86, 0x8000_0000_0000_0867));
        assert!(text.contains("0x8000000000000867 here: other in soft-dirty"), "{text}");
        let answer = serde_json::to_value(entries(Processor::X86, 0x67)).unwrap();
        assert_eq!(answer["receiver"][3]["flags"], "0x67");
        assert_eq!(answer["sender"][0]["is_present"], false);
        assert_eq!(answer["published"][0], "0x8000000000000025");
    }
}
