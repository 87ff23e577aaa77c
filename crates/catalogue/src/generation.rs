//! Flags that only some generations of a vendor's cores have: by these a core is told from the older one whose model a hypervisor states.
//!
//! Source: the features of each processor in LLVM `llvm/lib/Target/X86/X86.td`.

use kelvin_model::Cpu;

/// A flag that only some generations of a vendor's cores have.
struct Generations {
    vendor: &'static str,
    flag: &'static str,
    of_cores: &'static [&'static str],
}

const GENERATIONS: [Generations; 2] = [
    Generations {
        vendor: "GenuineIntel",
        flag: "amx_tile",
        of_cores: &["Sapphire Rapids", "Emerald Rapids", "Granite Rapids", "Granite Rapids-D", "Diamond Rapids"],
    },
    Generations { vendor: "AuthenticAMD", flag: "avx512f", of_cores: &["Zen 4", "Zen 5", "Zen 6"] },
];

/// What a processor that states the model of one generation has, and that generation has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contradiction<'c> {
    /// The generation whose model it states.
    pub claimed: &'c str,
    /// A flag that it has.
    pub flag: &'static str,
    /// The generations that have it.
    pub of_cores: &'static [&'static str],
}

impl<'c> Contradiction<'c> {
    /// The generations that are told by a flag.
    pub fn cores() -> impl Iterator<Item = &'static str> {
        GENERATIONS.iter().flat_map(|known| known.of_cores).copied()
    }

    /// That of a processor; `None` where nothing contradicts its model, or that is not known.
    pub fn of(cpu: &'c Cpu) -> Option<Self> {
        let (vendor, flags, claimed) = (cpu.vendor.get()?, cpu.flags.get()?, cpu.microarchitecture.get()?);
        let has = |known: &&Generations| *vendor == known.vendor && flags.iter().any(|flag| *flag == known.flag);
        let Generations { flag, of_cores, .. } =
            GENERATIONS.iter().find(|known| has(known) && !known.of_cores.contains(&claimed.as_str()))?;
        Some(Self { claimed, flag, of_cores })
    }
}
