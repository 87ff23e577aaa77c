//! The memory and processor structures of an SMBIOS table (DMTF DSP0134: types 4 and 17).

use std::collections::BTreeSet;

use crate::root::{FileRoot, known_name};

/// Where Linux keeps the table; root may read it.
pub(crate) const TABLE_FILE: &str = "sys/firmware/dmi/tables/DMI";

/// Modules that are read: no machine has so many, and the table is outside input.
const MAX_MODULES: usize = 4096;
/// Types of devices that keep their content without power: ROM, flash, EEPROM, FEPROM, EPROM and modules of persistent memory. Some tables
/// list the chip of the firmware.
const NON_VOLATILE_TYPES: [u8; 6] = [0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x1f];

/// The structures used here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Smbios {
    pub(crate) modules: Vec<MemoryModule>,
    pub(crate) processor: Option<SmbiosProcessor>,
}

/// An installed memory module (type 17).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryModule {
    /// Its size, where the firmware states it.
    pub(crate) bytes: Option<u64>,
    /// `DDR5`; `None` where the firmware states no generation, as in most virtual machines.
    pub(crate) kind: Option<&'static str>,
    /// Configured mega-transfers per second, else rated.
    pub(crate) megatransfers: Option<u32>,
    /// The clock in MHz, where the firmware states that in place of transfers.
    pub(crate) clock: Option<u32>,
    /// Width of its data path in bits.
    pub(crate) data_bits: Option<u16>,
    /// Slot: `DIMM_A1`.
    pub(crate) slot: String,
    /// Bank: `P0 CHANNEL A`.
    pub(crate) bank: String,
}

/// The first processor (type 4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SmbiosProcessor {
    /// Its name as the firmware prints it.
    pub(crate) name: Option<String>,
    /// Megahertz at boot.
    pub(crate) megahertz: Option<u16>,
}

impl Smbios {
    /// The table of a machine, or why it is unknown.
    pub(crate) fn read(root: FileRoot<'_>) -> Result<Self, String> {
        root.bytes(TABLE_FILE).map(|bytes| parse_table(&bytes))
    }

    /// Memory channels in use, from the names of slots and banks; `None` if these do not show it.
    pub(crate) fn channels(&self) -> Option<u32> {
        let channels: Option<BTreeSet<String>> = self.modules.iter().map(MemoryModule::channel).collect();
        channels.filter(|set| !set.is_empty()).and_then(|set| set.len().try_into().ok())
    }
}

impl MemoryModule {
    /// A unique name of this module's channel: the word `channel` with what follows and the socket or controller named
    /// next to it; else the letter of a slot such as `DIMM_A1`, which server boards give to channels.
    fn channel(&self) -> Option<String> {
        let (slot, bank) = (self.slot.to_ascii_uppercase(), self.bank.to_ascii_uppercase());
        [&slot, &bank].into_iter().find_map(|text| channel_word(text)).or_else(|| slot_letter(&slot)).map(|name| {
            // A board with several sockets repeats its channel letters on each of them.
            let socket = [&bank, &slot].into_iter().find_map(|text| socket_number(text)).unwrap_or_default();
            format!("{socket}/{name}")
        })
    }
}

/// `CHANNEL A` of `P0 CHANNEL A`, `CONTROLLER0-CHANNELB` of `Controller0-ChannelB-DIMM1`.
fn channel_word(text: &str) -> Option<String> {
    let (before, after) = text.split_once("CHANNEL")?;
    let letter = after.trim_start_matches(['_', ' ', '-']).chars().next().filter(char::is_ascii_alphanumeric)?;
    Some(format!("{before}{letter}"))
}

/// `A` of `DIMM_A1`, `CPU1_DIMM_A2`, `P1-DIMMA1`: a letter, then the number of the slot on its channel.
fn slot_letter(slot: &str) -> Option<String> {
    let (_, after) = slot.rsplit_once("DIMM")?;
    let after = after.trim_start_matches(['_', ' ', '-']).as_bytes();
    match after {
        [letter, number] if letter.is_ascii_uppercase() && number.is_ascii_digit() => Some(char::from(*letter).into()),
        _ => None,
    }
}

/// `1` of `CPU1_DIMM_A2`, `P1 CHANNEL A`, `NODE 1`.
fn socket_number(text: &str) -> Option<String> {
    ["CPU", "PROC", "NODE", "P"].into_iter().find_map(|word| {
        let (before, after) = text.split_once(word)?;
        let digits: String = after.trim_start_matches(['_', ' ']).chars().take_while(char::is_ascii_digit).collect();
        let starts_a_word = !before.ends_with(|c: char| c.is_ascii_alphanumeric());
        (starts_a_word && !digits.is_empty()).then_some(digits)
    })
}

/// Reads a table: consecutive structures, each a formatted part and a set of strings; stops where it is truncated.
pub(crate) fn parse_table(table: &[u8]) -> Smbios {
    let mut smbios = Smbios::default();
    let mut rest = table;
    while let Some((structure, after)) = Structure::first(rest) {
        match structure.kind() {
            4 if smbios.processor.is_none() => smbios.processor = Some(structure.processor()),
            17 if smbios.modules.len() < MAX_MODULES => smbios.modules.extend(structure.module()),
            127 => break,
            _ => {}
        }
        rest = after;
    }
    smbios
}

/// One structure of the table.
struct Structure<'t> {
    /// The formatted part, its header included.
    fields: &'t [u8],
    /// The strings, each ended by a NUL.
    strings: &'t [u8],
}

impl<'t> Structure<'t> {
    /// The structure at the beginning of some bytes, and what follows it.
    fn first(bytes: &'t [u8]) -> Option<(Self, &'t [u8])> {
        let length = usize::from(*bytes.get(1)?);
        if length < 4 {
            return None;
        }
        let (fields, tail) = bytes.split_at_checked(length)?;
        let end = tail.windows(2).position(|pair| pair == [0, 0])?;
        let (strings, after) = tail.split_at_checked(end + 2)?;
        Some((Self { fields, strings }, after))
    }

    fn kind(&self) -> u8 {
        self.fields[0]
    }

    fn byte(&self, offset: usize) -> Option<u8> {
        self.fields.get(offset).copied()
    }

    fn word(&self, offset: usize) -> Option<u16> {
        Some(u16::from_le_bytes(self.fields.get(offset..offset + 2)?.try_into().ok()?))
    }

    fn double_word(&self, offset: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.fields.get(offset..offset + 4)?.try_into().ok()?))
    }

    /// The string that the byte at an offset numbers, from 1; 0 is none.
    fn string(&self, offset: usize) -> Option<String> {
        let index = usize::from(self.byte(offset)?).checked_sub(1)?;
        let text = self.strings.split(|byte| *byte == 0).nth(index)?;
        let text = String::from_utf8_lossy(text).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    fn processor(&self) -> SmbiosProcessor {
        SmbiosProcessor { name: self.string(0x10), megahertz: self.word(0x16).filter(|&rate| rate != 0) }
    }

    /// The size in bytes that a module states: in MiB, or in KiB where the highest bit is set, or in an extended field.
    fn module_bytes(&self, size: u16) -> Option<u64> {
        let bytes = match size {
            0xffff => None,
            0x7fff => self.double_word(0x1c).map(|mebibytes| u64::from(mebibytes & 0x7fff_ffff) << 20),
            size if size & 0x8000 != 0 => Some(u64::from(size & 0x7fff) << 10),
            size => Some(u64::from(size) << 20),
        };
        bytes.filter(|&bytes| bytes > 0)
    }

    /// The module of this slot; `None` for an empty slot, or one of memory that is no main memory.
    fn module(&self) -> Option<MemoryModule> {
        let size = self.word(0x0c).filter(|&size| size != 0)?;
        let valid_rate = |rate: u16| if rate == 0 || rate == 0xffff { None } else { Some(u32::from(rate)) };
        // Rates beyond 65534 MT/s are in the extended fields, marked by FFFFh in the short ones.
        let rate = |field: usize, extended_field: usize| match self.word(field) {
            Some(0xffff) => self.double_word(extended_field).map(|rate| rate & 0x7fff_ffff).filter(|&rate| rate != 0),
            rate => rate.and_then(valid_rate),
        };
        let code = self.byte(0x12).unwrap_or_default();
        if NON_VOLATILE_TYPES.contains(&code) {
            return None;
        }
        let kind = known_name("memory_generation", |key| key == format!("{code:#04x}"));
        let lowest = kind.and_then(|kind| known_name("memory_lowest_rate", |key| key == kind)?.parse().ok());
        let stated_rate = rate(0x20, 0x58).or_else(|| rate(0x15, 0x54));
        // Until SMBIOS 3.1 the field was called MHz, and firmware stated the clock there: less than the lowest rate is one.
        let clock = stated_rate.filter(|rate| lowest.is_some_and(|lowest: u32| *rate < lowest));
        Some(MemoryModule {
            bytes: self.module_bytes(size),
            kind,
            megatransfers: clock.map(rate_of_clock).or(stated_rate),
            clock,
            data_bits: self.word(0x0a).filter(|&bits| bits != 0 && bits != 0xffff),
            slot: self.string(0x10).unwrap_or_default(),
            bank: self.string(0x11).unwrap_or_default(),
        })
    }
}

/// MT/s of a clock in MHz: two transfers each. Clocks are multiples of 33 1/3 MHz, which the firmware has rounded.
fn rate_of_clock(megahertz: u32) -> u32 {
    let (stated_clock, third) = (f64::from(megahertz), 100.0 / 3.0);
    let exact_clock = (stated_clock / third).round() * third;
    (2.0 * if (exact_clock - stated_clock).abs() < 1.0 { exact_clock } else { stated_clock }).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A type 17 structure of version 3.3.
    fn module(size_megabytes: u16, kind: u8, max_rate: u16, configured_rate: u16, slot: &str, bank: &str) -> Vec<u8> {
        let mut bytes = vec![0; 0x5c];
        bytes[0] = 17;
        bytes[1] = 0x5c;
        bytes[0x0a..0x0c].copy_from_slice(&64u16.to_le_bytes());
        bytes[0x0c..0x0e].copy_from_slice(&size_megabytes.to_le_bytes());
        bytes[0x12] = kind;
        bytes[0x15..0x17].copy_from_slice(&max_rate.to_le_bytes());
        bytes[0x20..0x22].copy_from_slice(&configured_rate.to_le_bytes());
        // An empty string cannot be written: it is number 0, and two NULs end the structure.
        let texts = [(0x10, slot), (0x11, bank)].into_iter().filter(|(_, text)| !text.is_empty());
        for (number, (offset, text)) in texts.enumerate() {
            bytes[offset] = number as u8 + 1;
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(0);
        }
        bytes.push(0);
        bytes
    }

    #[test]
    fn server_board_modules_and_channels_are_parsed() {
        let mut table = module(0x7fff, 0x22, 5600, 4800, "P0_DIMM_A1", "P0 CHANNEL A");
        table.extend(module(0x7fff, 0x22, 5600, 4800, "P0_DIMM_B1", "P0 CHANNEL B"));
        table.extend(module(0, 0x02, 0, 0, "P0_DIMM_A2", "P0 CHANNEL A"));
        table.extend(module(0x7fff, 0x22, 5600, 4800, "P1_DIMM_A1", "P1 CHANNEL A"));
        table.extend([127, 4, 0, 0, 0, 0]);
        let smbios = parse_table(&table);
        assert_eq!(smbios.modules.len(), 3);
        assert_eq!(smbios.modules[0].kind, Some("DDR5"));
        assert_eq!(smbios.modules[0].megatransfers, Some(4800));
        assert_eq!(smbios.modules[0].data_bits, Some(64));
        assert_eq!(smbios.channels(), Some(3));
    }

    #[test]
    fn sizes_of_modules_are_parsed() {
        let bytes = |size, extended: u32| {
            let mut table = module(size, 0x1a, 3200, 3200, "A", "");
            table[0x1c..0x20].copy_from_slice(&extended.to_le_bytes());
            parse_table(&table).modules.first().map(|module| module.bytes)
        };
        assert_eq!(bytes(8192, 0), Some(Some(8 << 30)));
        assert_eq!(bytes(0x8000 | 512, 0), Some(Some(512 << 10)));
        // A size of 32 GiB less 1 MiB and more is in the extended field, whose highest bit is reserved.
        assert_eq!(bytes(0x7fff, 0x8001_0000), Some(Some(64 << 30)));
        assert_eq!(bytes(0x7fff, 0), Some(None));
        assert_eq!(bytes(0xffff, 0), Some(None));
        assert_eq!(bytes(0, 0), None);
    }

    #[test]
    fn chip_of_firmware_is_no_module() {
        let mut table = module(8, 0x09, 0, 0, "SYSTEM ROM", "");
        table.extend(module(8192, 0x1a, 3200, 3200, "DIMM_A1", ""));
        assert_eq!(parse_table(&table).modules.len(), 1);
        let many: Vec<u8> = (0..MAX_MODULES + 8).flat_map(|_| module(1, 0x1a, 0, 0, "A", "")).collect();
        assert_eq!(parse_table(&many).modules.len(), MAX_MODULES);
    }

    #[test]
    fn channel_names_of_boards_are_parsed() {
        let channels = |names: &[(&str, &str)]| {
            let table: Vec<u8> =
                names.iter().flat_map(|(slot, bank)| module(8192, 0x1a, 3200, 3200, slot, bank)).collect();
            parse_table(&table).channels()
        };
        assert_eq!(channels(&[("DIMM_A1", ""), ("DIMM_A2", ""), ("DIMM_B1", "")]), Some(2));
        assert_eq!(channels(&[("CPU1_DIMM_A1", ""), ("CPU2_DIMM_A1", "")]), Some(2));
        assert_eq!(
            channels(&[("Controller0-ChannelA-DIMM0", "BANK 0"), ("Controller1-ChannelA-DIMM0", "BANK 0")]),
            Some(2)
        );
        assert_eq!(channels(&[("DIMM 0", "P0 CHANNEL A"), ("DIMM 1", "P0 CHANNEL A")]), Some(1));
        assert_eq!(channels(&[("DIMM 0", "BANK 0"), ("DIMM 1", "BANK 1")]), None);
        assert_eq!(channels(&[]), None);
    }

    #[test]
    fn missing_configured_rate_uses_rated() {
        assert_eq!(parse_table(&module(8192, 0x1a, 3200, 0, "A", "")).modules[0].megatransfers, Some(3200));
        assert_eq!(parse_table(&module(8192, 0x07, 0, 0, "DIMM 0", "")).modules[0].kind, None);
    }

    #[test]
    fn impossibly_low_rate_is_clock() {
        let rate = |kind, stated_rate| {
            let parsed_module = parse_table(&module(8192, kind, stated_rate, stated_rate, "A", "")).modules[0].clone();
            (parsed_module.megatransfers, parsed_module.clock)
        };
        assert_eq!(rate(0x18, 667), (Some(1333), Some(667)));
        assert_eq!(rate(0x18, 533), (Some(1067), Some(533)));
        assert_eq!(rate(0x18, 800), (Some(800), None));
        assert_eq!(rate(0x18, 1333), (Some(1333), None));
        assert_eq!(rate(0x13, 333), (Some(667), Some(333)));
        assert_eq!(rate(0x12, 133), (Some(267), Some(133)));
        assert_eq!(rate(0x1a, 1200), (Some(2400), Some(1200)));
        assert_eq!(rate(0x1b, 166), (Some(166), None), "memory of portable devices slows down");
        assert_eq!(rate(0x07, 667), (Some(667), None), "nothing is known of it");
    }

    #[test]
    fn truncated_table_keeps_complete_structures() {
        let table = module(8192, 0x1a, 3200, 2933, "DIMM_A1", "");
        for length in 0..table.len() {
            assert_eq!(parse_table(&table[..length]), Smbios::default(), "{length}");
        }
        assert_eq!(parse_table(&table).modules.len(), 1);
    }
}
