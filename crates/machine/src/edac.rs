//! Memory modules as the driver of the memory controllers reports them: anybody may read that, but only drivers of some controllers exist.
//!
//! Source: the kernel's Documentation/admin-guide/RAS and drivers/edac/edac_mc_sysfs.c.

use std::collections::BTreeSet;

use crate::root::FileRoot;

const DIRECTORY: &str = "/sys/devices/system/edac/mc";

/// The modules of all memory controllers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edac {
    pub(crate) entries: Vec<EdacEntry>,
}

/// A module, or a rank of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EdacEntry {
    /// Some drivers know the ranks only, of which a module has one or several.
    pub(crate) is_rank: bool,
    pub(crate) bytes: u64,
    /// `DDR5`.
    pub(crate) kind: Option<String>,
    /// A unique name of its channel, where the driver knows channels.
    channel: Option<String>,
}

impl Edac {
    /// What the drivers report, or why it is unknown.
    pub(crate) fn read(root: FileRoot<'_>) -> Result<Self, String> {
        let mut entries = Vec::new();
        for controller in root.names(DIRECTORY).iter().filter(|name| is_numbered(name, "mc")) {
            let directory = format!("{DIRECTORY}/{controller}");
            for name in root.names(&directory) {
                let is_rank = is_numbered(&name, "rank");
                if is_rank || is_numbered(&name, "dimm") {
                    let text = |file: &str| root.text(&format!("{directory}/{name}/{file}"));
                    let size = text("size").and_then(|text| text.parse::<u64>().ok()?.checked_mul(1 << 20));
                    let memory_type = text("dimm_mem_type").unwrap_or_default();
                    let Some(bytes) = size.filter(|&size| size > 0 && memory_type != "Non-volatile-RAM") else {
                        continue;
                    };
                    let channel = text("dimm_location").and_then(|location| channel_of(controller, &location));
                    entries.push(EdacEntry { is_rank, bytes, kind: generation(&memory_type), channel });
                }
            }
        }
        match entries.is_empty() {
            false => Ok(Self { entries }),
            true => Err(format!("no driver reports memory modules in {DIRECTORY}")),
        }
    }

    pub(crate) fn source(&self) -> String {
        format!("{DIRECTORY} (the driver of the memory controllers)")
    }

    /// Memory channels in use; `None` if the driver does not know them.
    pub(crate) fn channels(&self) -> Option<u32> {
        let channels: Option<BTreeSet<&String>> = self.entries.iter().map(|entry| entry.channel.as_ref()).collect();
        channels?.len().try_into().ok()
    }
}

/// Whether a name is this word with a number.
fn is_numbered(name: &str, word: &str) -> bool {
    name.strip_prefix(word).is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// `mc0 channel 1` of `channel 1 slot 0` or `csrow 2 channel 1`. A branch has channels of its own, a slot and a row share their channel.
fn channel_of(controller: &str, location: &str) -> Option<String> {
    let words: Vec<&str> = location.split_ascii_whitespace().collect();
    let layers = words.chunks_exact(2).filter(|layer| ["branch", "channel"].contains(&layer[0]));
    let layers: Vec<String> = layers.map(|layer| layer.join(" ")).collect();
    let has_channel = layers.iter().any(|layer| layer.starts_with("channel"));
    has_channel.then(|| format!("{controller} {}", layers.join(" ")))
}

/// `DDR4` of `Registered-DDR4`, `LPDDR4` of `Low-Power-DDR4-RAM`.
fn generation(memory_type: &str) -> Option<String> {
    let generation = memory_type.split('-').find(|part| part.starts_with("DDR"))?;
    Some(if memory_type.starts_with("Low-Power-") { format!("LP{generation}") } else { generation.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::FixtureTree;

    fn edac(entries: &[(&str, &str, &str, &str)]) -> Result<Edac, String> {
        let tree = FixtureTree::default();
        for (name, size, memory_type, location) in entries {
            for (file, text) in [("size", size), ("dimm_mem_type", memory_type), ("dimm_location", location)] {
                tree.fill(&format!("sys/devices/system/edac/mc/{name}/{file}"), format!("{text}\n"));
            }
        }
        Edac::read(FileRoot::new(tree.path()))
    }

    #[test]
    fn modules_of_two_controllers_are_read() {
        let edac = edac(&[
            ("mc0/dimm0", "32768", "Registered-DDR4", "channel 0 slot 0 "),
            ("mc0/dimm1", "32768", "Registered-DDR4", "channel 0 slot 1 "),
            ("mc0/dimm2", "32768", "Registered-DDR4", "channel 1 slot 0 "),
            ("mc1/dimm0", "32768", "Registered-DDR4", "channel 0 slot 0 "),
            ("mc1/dimm1", "0", "Empty", "channel 1 slot 0 "),
            ("mc1/dimm2", "131072", "Non-volatile-RAM", "channel 1 slot 1 "),
            ("power/dimm0", "1", "Registered-DDR4", "channel 0 slot 0 "),
        ]);
        let edac = edac.unwrap();
        assert_eq!((edac.entries.len(), edac.channels()), (4, Some(3)));
        let entry = &edac.entries[0];
        assert_eq!((entry.is_rank, entry.bytes, entry.kind.as_deref()), (false, 32 << 30, Some("DDR4")));
    }

    #[test]
    fn ranks_show_channels() {
        // An AMD desktop of family 17h, as its owner published it (linux-edac, 11 November 2021).
        let edac = edac(&[
            ("mc0/rank4", "8192", "Unbuffered-DDR4", "csrow 2 channel 0 "),
            ("mc0/rank5", "8192", "Unbuffered-DDR4", "csrow 2 channel 1 "),
            ("mc0/rank6", "8192", "Unbuffered-DDR4", "csrow 3 channel 0 "),
            ("mc0/rank7", "8192", "Unbuffered-DDR4", "csrow 3 channel 1 "),
        ]);
        let edac = edac.unwrap();
        assert!(edac.entries.iter().all(|entry| entry.is_rank));
        assert_eq!(edac.channels(), Some(2));
    }

    #[test]
    fn names_of_types_and_places_are_parsed() {
        assert_eq!(generation("Load-Reduced-DDR4-RAM").as_deref(), Some("DDR4"));
        assert_eq!(generation("Low-Power-DDR4-RAM").as_deref(), Some("LPDDR4"));
        assert_eq!(generation("Unknown"), None);
        assert_eq!(channel_of("mc0", "branch 1 channel 0 slot 2").as_deref(), Some("mc0 branch 1 channel 0"));
        assert_eq!(channel_of("mc0", "memory 3"), None);
        assert!(edac(&[]).unwrap_err().contains("no driver"));
        let unplaced = edac(&[("mc0/dimm0", "1024", "Unknown", "memory 0")]).unwrap();
        assert_eq!((unplaced.channels(), unplaced.entries[0].kind.clone()), (None, None));
    }
}
