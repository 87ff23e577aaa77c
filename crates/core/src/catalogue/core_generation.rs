//! Flags that only some generations of a vendor's cores have: by these a core is distinguished from the older one whose model a hypervisor states.
//!
//! Source: the features of each processor in LLVM `llvm/lib/Target/X86/X86.td`.

use crate::Cpu;

/// A flag that only some generations of a vendor's cores have.
struct GenerationFlag {
    vendor: &'static str,
    flag: &'static str,
    cores: &'static [&'static str],
}

const GENERATION_FLAGS: [GenerationFlag; 2] = [
    GenerationFlag {
        vendor: "GenuineIntel",
        flag: "amx_tile",
        cores: &["Sapphire Rapids", "Emerald Rapids", "Granite Rapids", "Granite Rapids-D", "Diamond Rapids"],
    },
    GenerationFlag { vendor: "AuthenticAMD", flag: "avx512f", cores: &["Zen 4", "Zen 5", "Zen 6"] },
];

/// What a processor that states the model of one generation has, and that generation has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelContradiction<'c> {
    /// The generation whose model it states.
    pub claimed: &'c str,
    /// A flag that it has.
    pub flag: &'static str,
    /// The generations that have it.
    pub cores: &'static [&'static str],
}

impl<'c> ModelContradiction<'c> {
    /// The generations that a flag identifies.
    pub fn flagged_cores() -> impl Iterator<Item = &'static str> {
        GENERATION_FLAGS.iter().flat_map(|generation| generation.cores).copied()
    }

    /// That of a processor; `None` where nothing contradicts its model, or that is not known.
    pub fn from_cpu(cpu: &'c Cpu) -> Option<Self> {
        let (vendor, flags, claimed) = (cpu.vendor.get()?, cpu.flags.get()?, cpu.microarchitecture.get()?);
        let has_flag = |generation: &&GenerationFlag| {
            *vendor == generation.vendor && flags.iter().any(|flag| *flag == generation.flag)
        };
        let GenerationFlag { flag, cores, .. } = GENERATION_FLAGS
            .iter()
            .find(|generation| has_flag(generation) && !generation.cores.contains(&claimed.as_str()))?;
        Some(Self { claimed, flag, cores })
    }
}
