//! Facts of memory modules, from the firmware's table or else from the driver of the memory controllers.

use std::cmp::Reverse;

use kelvin_core::{Fact, IndirectSort, ModuleGroup};

use crate::edac::Edac;
use crate::root::{absolute_name, fact_of};
use crate::smbios::{MemoryModule, Smbios, TABLE_FILE};

/// A value and its source, or why it is unknown.
type Sourced<T> = Result<(T, String), String>;

/// The two sources.
pub(crate) struct ModuleSources<'a> {
    pub(crate) table: &'a Result<Smbios, String>,
    pub(crate) edac: Result<Edac, String>,
}

impl ModuleSources<'_> {
    /// All modules, alike ones together, the most frequent first.
    pub(crate) fn modules(&self) -> Fact<Vec<ModuleGroup>> {
        self.first_of(self.table_modules(), |edac| {
            let has_ranks = edac.entries.iter().any(|entry| entry.is_rank);
            let groups = || groups_of(edac.entries.iter().map(|entry| (entry.bytes, None)));
            (!has_ranks).then(groups)
        })
    }

    /// The generation that all of them have.
    pub(crate) fn kind(&self) -> Fact<String> {
        let kind = self.common_value("type", |module| module.kind.map(str::to_owned));
        self.first_of(kind.map(|kind| (kind, table_source())), |edac| {
            let first = edac.entries.first()?.kind.clone()?;
            edac.entries.iter().all(|entry| entry.kind.as_ref() == Some(&first)).then_some(first)
        })
    }

    /// Transfers per second of one channel.
    pub(crate) fn transfers_per_second(&self) -> Fact<f64> {
        fact_of(self.table_rate())
    }

    /// Channels with modules.
    pub(crate) fn channels(&self) -> Fact<u32> {
        self.first_of(self.table_channels(), Edac::channels)
    }

    /// Channels times transfers per second times bytes of one transfer.
    pub(crate) fn peak_bytes_per_second(&self) -> Fact<f64> {
        fact_of(self.table_peak())
    }

    /// The value by the firmware's table, else by the driver; the reason why the table has none, if neither has.
    fn first_of<T>(&self, by_table: Sourced<T>, by_driver: impl FnOnce(&Edac) -> Option<T>) -> Fact<T> {
        fact_of(by_table.or_else(|reason| {
            let edac = self.edac.as_ref().ok();
            edac.and_then(|edac| Some((by_driver(edac)?, edac.source()))).ok_or(reason)
        }))
    }

    fn table_modules(&self) -> Sourced<Vec<ModuleGroup>> {
        let modules = self.listed_modules()?;
        let size_and_rate = |module: &MemoryModule| Some((module.bytes?, module.megatransfers));
        let sizes: Option<Vec<(u64, Option<u32>)>> = modules.iter().map(size_and_rate).collect();
        let sizes = sizes.ok_or("the firmware table does not state the size of each memory module")?;
        Ok((groups_of(sizes.into_iter()), table_source()))
    }

    fn table_rate(&self) -> Sourced<f64> {
        let rate = f64::from(self.common_value("rate", |module| module.megatransfers)?) * 1e6;
        let source = table_source();
        Ok(match self.common_value("clock", |module| module.clock) {
            Ok(clock) => (rate, format!("{source}, two transfers for each cycle of the {clock} MHz that it states")),
            Err(_) => (rate, source),
        })
    }

    fn table_channels(&self) -> Sourced<u32> {
        let modules = self.listed_modules()?.len();
        let channels = self.table.as_ref().map_err(String::clone)?.channels().ok_or_else(|| {
            format!("the firmware lists {modules} memory modules, and their slot names do not identify channels")
        })?;
        Ok((channels, format!("slot names in {}", table_source())))
    }

    fn table_peak(&self) -> Sourced<f64> {
        let ((channels, _), (rate, _)) = (self.table_channels()?, self.table_rate()?);
        let bits = self.common_value("data width", |module| module.data_bits)?;
        let peak = f64::from(channels) * rate * f64::from(bits) / 8.0;
        Ok((peak, format!("channels x rate x {bits} bit, from {}", table_source())))
    }

    /// The modules of the table, at least one.
    fn listed_modules(&self) -> Result<&[MemoryModule], String> {
        let modules = &self.table.as_ref().map_err(String::clone)?.modules;
        if modules.is_empty() { Err("the firmware table lists no memory module".into()) } else { Ok(modules) }
    }

    /// One property that all modules of the table share.
    fn common_value<T: PartialEq>(
        &self,
        description: &str,
        property: impl Fn(&MemoryModule) -> Option<T>,
    ) -> Result<T, String> {
        let modules = self.listed_modules()?;
        match property(&modules[0]) {
            Some(value) if modules.iter().all(|module| property(module).as_ref() == Some(&value)) => Ok(value),
            Some(_) => Err(format!("the memory modules differ in {description}")),
            None => {
                Err(format!("the firmware table does not state the {description}, as is usual in virtual machines"))
            }
        }
    }
}

fn table_source() -> String {
    format!("{} (SMBIOS type 17)", absolute_name(TABLE_FILE))
}

/// Modules by size and mega-transfers per second.
fn groups_of(modules: impl Iterator<Item = (u64, Option<u32>)>) -> Vec<ModuleGroup> {
    let mut modules: Vec<(u64, Option<u32>)> = modules.collect();
    modules.sort_unstable_by_key(|module| Reverse(*module));
    let group = |alike: &[(u64, Option<u32>)]| ModuleGroup {
        count: alike.len().try_into().unwrap_or(u32::MAX),
        bytes: alike[0].0,
        transfers_per_second: alike[0].1.map(|rate| f64::from(rate) * 1e6),
    };
    let mut groups: Vec<ModuleGroup> = modules.chunk_by(PartialEq::eq).map(group).collect();
    groups.indirect_sort_by_key(|group| Reverse(group.count));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::FileRoot;
    use crate::tests::FixtureTree;

    #[test]
    fn driver_states_what_table_does_not() {
        let tree = FixtureTree::default();
        let no_table = || Err(String::from("only root may read the table"));
        let fill = |name: &str, location: &str| {
            for (file, text) in [("size", "16384"), ("dimm_mem_type", "Registered-DDR5"), ("dimm_location", location)] {
                tree.fill(&format!("sys/devices/system/edac/mc/mc0/{name}/{file}"), text);
            }
        };
        let table = no_table();
        let sources = || ModuleSources { table: &table, edac: Edac::read(FileRoot::new(tree.path())) };
        assert_eq!(sources().modules().source_or_reason(), "only root may read the table");
        fill("dimm0", "channel 0 slot 0");
        fill("dimm3", "channel 1 slot 1");
        let modules = sources().modules();
        assert_eq!(
            modules.get(),
            Some(&vec![ModuleGroup { count: 2, bytes: 16 << 30, transfers_per_second: None }]),
            "{modules:?}"
        );
        assert!(modules.source_or_reason().contains("/edac/mc"));
        assert_eq!(sources().channels().get(), Some(&2));
        assert_eq!(sources().kind().get().map(String::as_str), Some("DDR5"));
        assert_eq!(sources().transfers_per_second().source_or_reason(), "only root may read the table");
        // Of ranks the driver knows the channels, but not how many make a module.
        fill("rank4", "csrow 2 channel 2");
        assert_eq!(sources().modules().source_or_reason(), "only root may read the table");
        assert_eq!(sources().channels().get(), Some(&3));
    }

    #[test]
    fn alike_modules_are_one_group() {
        let groups = groups_of([(16 << 30, Some(4800)), (32 << 30, Some(4800)), (32 << 30, Some(4800))].into_iter());
        let texts: Vec<(u32, u64)> = groups.iter().map(|group| (group.count, group.bytes)).collect();
        assert_eq!(texts, [(2, 32 << 30), (1, 16 << 30)]);
        assert_eq!(groups[0].transfers_per_second, Some(4.8e9));
        // Modules that run slower than the others are a group of their own.
        assert_eq!(groups_of([(1 << 30, Some(3200)), (1 << 30, Some(2933))].into_iter()).len(), 2);
    }
}
