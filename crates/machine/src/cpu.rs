//! Facts of the processor, from /proc/cpuinfo, cpuid, cpufreq and the firmware.
//!
//! Names of microarchitectures come from the processors' identification numbers.
//!
//! Sources: AMD - the model ranges of `bsp_init_amd` in Linux `arch/x86/kernel/cpu/amd.c`, and LLVM
//! `llvm/lib/TargetParser/Host.cpp` (`getAMDProcessorTypeAndSubtype`) for families before Zen, for Zen+ and for the
//! custom Zen 2 parts that Linux does not list; Intel - Linux `arch/x86/include/asm/intel-family.h`, also for the
//! steppings that distinguish parts of one model, and Intel SDM volume 4, table 2-1 (5Dh); Arm - Linux
//! `arch/arm64/include/asm/cputype.h` and util-linux `sys-utils/lscpu-arm.c`; Graviton - the core named for each
//! generation in the AWS Graviton Technical Guide (github.com/aws/aws-graviton-getting-started), and for the first one
//! Wikipedia, "AWS Graviton".

use std::collections::BTreeMap;

use kelvin_core::catalogue::ModelContradiction;
use kelvin_core::{Cpu, Fact, Mitigation, Name, Tlb};

use crate::cpuid::Cpuid;
use crate::hardware_counters::hardware_counters;
use crate::root::{FileRoot, data_lines, excerpt, fact_of, known_name, non_empty, parse_number, required};
use crate::smbios::Smbios;
use crate::tlb;

pub(crate) const CPUINFO: &str = "/proc/cpuinfo";
const VULNERABILITIES: &str = "sys/devices/system/cpu/vulnerabilities";

/// The processor by its sources.
pub(crate) struct CpuSources<'a> {
    pub(crate) root: FileRoot<'a>,
    pub(crate) cpuid: &'a Cpuid,
    pub(crate) smbios: &'a Result<Smbios, String>,
    /// The CPU that is measured.
    pub(crate) number: u32,
}

/// One block of /proc/cpuinfo, key to value.
type CpuinfoBlock = BTreeMap<String, String>;

/// All facts of the processor, and its architecture.
pub(crate) fn read(sources: CpuSources<'_>) -> (Name, Cpu) {
    let processor = Processor { block: cpuinfo_block(&sources), sources };
    let vendor = processor.vendor();
    let keys = match processor.is_arm() {
        true => ["CPU architecture", "CPU part", "CPU revision"],
        false => ["cpu family", "model", "stepping"],
    };
    let [family, model, stepping] = keys.map(|key| processor.fact(key, parse_integer));
    let root = processor.sources.root;
    let mut cpu = Cpu {
        number: Some(processor.sources.number),
        model_name: processor.model_name(),
        microcode: processor.fact("microcode", |text| Some(text.to_owned())),
        nominal_hz: processor.nominal_hz(),
        maximum_hz: processor.maximum_hz(),
        measured_hz: Fact::unknown("not measured: a run measures it with a chain of dependent multiplies"),
        counter_hz: processor.counter_hz(&vendor),
        flags: processor.fact(if processor.is_arm() { "Features" } else { "flags" }, |text| {
            Some(text.split_ascii_whitespace().map(str::to_owned).collect())
        }),
        governor: root.fact(&processor.path("cpufreq/scaling_governor"), non_empty),
        mitigations: mitigations(root),
        hardware_counters: hardware_counters(root, processor.sources.number),
        microarchitecture: fact_of(processor.microarchitecture([&family, &model, &stepping], &vendor)),
        tlbs: fact_of(processor.tlbs(&vendor)),
        vendor,
        family,
        model,
        stepping,
    };
    if let Some(ModelContradiction { claimed, flag, cores }) = ModelContradiction::from_cpu(&cpu) {
        let source = cpu.microarchitecture.source_or_reason();
        let source = format!("{source}; contradicted by the flag {flag}, as only {} have", cores.join(", "));
        cpu.microarchitecture = Fact::known(claimed.to_owned(), source);
    }
    (processor.architecture(), cpu)
}

/// Whether the processor is of Arm's architecture.
pub(crate) fn is_arm(root: FileRoot<'_>) -> bool {
    root.text(CPUINFO)
        .is_some_and(|text| parse_cpuinfo(&text).iter().any(|block| block.contains_key("CPU implementer")))
}

/// The design of each CPU of Arm, by its block of /proc/cpuinfo or else by its main ID register, where it is in the table.
pub(crate) fn arm_designs(root: FileRoot<'_>) -> BTreeMap<u32, &'static str> {
    let blocks = parse_cpuinfo(&root.text(CPUINFO).unwrap_or_default());
    let design = |block: &CpuinfoBlock| {
        let number = |key: &str| parse_integer(block.get(key)?);
        Some((number("processor")?, arm(number("CPU implementer")?, number("CPU part")?)?))
    };
    blocks.iter().filter_map(design).collect()
}

/// The block of /proc/cpuinfo of the CPU that probes run on.
fn cpuinfo_block(sources: &CpuSources<'_>) -> Result<CpuinfoBlock, String> {
    let mut blocks = parse_cpuinfo(&sources.root.read(CPUINFO)?);
    let number = sources.number.to_string();
    let index = blocks.iter().position(|block| block.get("processor") == Some(&number)).unwrap_or(0);
    // Old kernels of Arm write what all processors share in a block of its own, behind theirs.
    let shared = blocks.iter().find(|block| block.contains_key("CPU implementer"));
    let shared = shared.filter(|block| !block.contains_key("processor")).cloned();
    if blocks.is_empty() {
        return Err(format!("{CPUINFO} is empty"));
    }
    let mut cpu_block = blocks.swap_remove(index);
    for (key, value) in shared.into_iter().flatten() {
        cpu_block.entry(key).or_insert(value);
    }
    Ok(cpu_block)
}

struct Processor<'a> {
    sources: CpuSources<'a>,
    block: Result<CpuinfoBlock, String>,
}

impl Processor<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.block.as_ref().ok()?.get(key).map(String::as_str)
    }

    fn fact<T>(&self, key: &str, parse: impl FnOnce(&str) -> Option<T>) -> Fact<T> {
        match (&self.block, self.get(key)) {
            (Err(reason), _) => Fact::unknown(reason.as_str()),
            (Ok(_), None) => Fact::unknown(format!("{CPUINFO} has no line '{key}' on this platform")),
            (Ok(_), Some(text)) => match parse(text) {
                Some(value) => Fact::known(value, CPUINFO),
                None => {
                    Fact::unknown(format!("{CPUINFO} says '{key}' is {:?}, which is not meaningful", excerpt(text)))
                }
            },
        }
    }

    fn is_arm(&self) -> bool {
        self.get("CPU implementer").is_some()
    }

    /// Implementer and part, on Arm.
    fn arm_implementer_and_part(&self) -> Option<(u32, u32)> {
        Some((parse_integer(self.get("CPU implementer")?)?, parse_integer(self.get("CPU part")?)?))
    }

    fn architecture(&self) -> Name {
        match () {
            () if self.sources.root.is_live() => Name::new(std::env::consts::ARCH),
            // Other processors have a vendor too; flags are x86's, and `lm` is the long mode of 64 bits.
            () if self.get("vendor_id").is_some() && self.contains_word("flags", "lm") => Name::new("x86_64"),
            () if self.get("vendor_id").is_some() && self.get("flags").is_some() => Name::new("i686"),
            () if self.get("vendor_id") == Some("IBM/S390") => Name::new("s390x"),
            // No feature of 64-bit kernels is called `thumb`, which is a set of instructions of 32-bit ones.
            () if self.is_arm()
                && (self.get("CPU architecture").and_then(parse_integer).is_some_and(|version| version < 8)
                    || self.contains_word("Features", "thumb")) =>
            {
                Name::new("arm")
            }
            () if self.is_arm() => Name::new("aarch64"),
            () if self.get("isa").is_some_and(|isa| isa.starts_with("rv64")) => Name::new("riscv64"),
            () => Name::new("unknown"),
        }
    }

    fn vendor(&self) -> Fact<String> {
        if self.is_arm() {
            let name = |code| arm_implementer(code).map(str::to_owned);
            return self.fact("CPU implementer", |text| name(parse_integer(text)?));
        }
        self.fact("vendor_id", |text| Some(text.to_owned()))
    }

    fn model_name(&self) -> Fact<String> {
        if self.get("model name").is_some() || !self.is_arm() {
            return self.fact("model name", |text| Some(text.to_owned()));
        }
        // Arm has no model name: the firmware may state one, and on EC2 the core identifies it.
        if let Ok(Some(name)) = self.sources.smbios.as_ref().map(|table| table.processor.as_ref()?.name.clone()) {
            return Fact::known(name, "SMBIOS type 4, version");
        }
        let is_amazon =
            self.sources.root.text("sys/class/dmi/id/sys_vendor").is_some_and(|vendor| vendor == "Amazon EC2");
        let numbers = self.arm_implementer_and_part().filter(|_| is_amazon);
        match numbers.and_then(|(implementer, part)| graviton(implementer, part)) {
            Some(name) => Fact::known(name.to_owned(), "part number, on Amazon EC2 (/sys/class/dmi/id)"),
            None => Fact::unknown(
                "/proc/cpuinfo has no processor name on Arm; the firmware table may have one (run as root)",
            ),
        }
    }

    fn microarchitecture(
        &self,
        [family, model, stepping]: [&Fact<u32>; 3],
        vendor: &Fact<String>,
    ) -> Result<(String, String), String> {
        let (name, numbers) = match self.arm_implementer_and_part() {
            Some((implementer, part)) => {
                let numbers = format!("implementer {implementer:#04x} part {part:#05x}");
                (arm(implementer, part), numbers)
            }
            None => {
                let (vendor, family, model) = (required(vendor)?, *required(family)?, *required(model)?);
                let stepping = stepping.get().copied().unwrap_or(0);
                let numbers = format!("{vendor} family {family:#x} model {model:#x}");
                (x86(vendor, family, model, stepping), numbers)
            }
        };
        let name = name.ok_or_else(|| format!("{numbers} is not in kelvin's table"))?;
        Ok((name.to_owned(), format!("{numbers}, kelvin's table")))
    }

    fn tlbs(&self, vendor: &Fact<String>) -> Result<(Vec<Tlb>, String), String> {
        let vendor = vendor.get().ok_or("the vendor of the processor is unknown")?;
        let cpuid = self.sources.cpuid;
        let tlbs = tlb::tlbs(cpuid, vendor);
        if tlbs.is_empty() {
            return Err(cpuid.unavailable_reason("2, 18h (Intel) or 80000005h, 80000006h (AMD)"));
        }
        let suffix = if cpuid.hypervisor_bit() == Some(true) { ", as the hypervisor presents it" } else { "" };
        Ok((tlbs, format!("cpuid{suffix}")))
    }

    /// Whether a line is a list with this word.
    fn contains_word(&self, key: &str, word: &str) -> bool {
        self.get(key).is_some_and(|words| words.split_ascii_whitespace().any(|candidate| candidate == word))
    }

    fn nominal_hz(&self) -> Fact<f64> {
        let tries = [
            self.sysfs_frequency("cpufreq/base_frequency", 1e3),
            self.sysfs_frequency("acpi_cppc/nominal_freq", 1e6),
            self.leaf_16h(0),
            self.frequency_in_name(),
            self.constant_cpuinfo_mhz(),
            self.smbios_frequency(),
        ];
        tries.into_iter().flatten().next().unwrap_or_else(|| {
            Fact::unknown("no base_frequency, acpi_cppc, cpuid leaf 16h, frequency in the model name or firmware entry")
        })
    }

    fn maximum_hz(&self) -> Fact<f64> {
        const FILE: &str = "cpufreq/cpuinfo_max_freq";
        let tries = [self.sysfs_frequency(FILE, 1e3), self.leaf_16h(1)];
        let stated_text = || self.sources.root.text(&self.path(FILE)).map(|text| excerpt(text.trim()));
        tries.into_iter().flatten().next().unwrap_or_else(|| {
            Fact::unknown(match stated_text() {
                Some(text) => format!("{} states '{text}', and there is no cpuid leaf 16h", self.path(FILE)),
                None => "no cpufreq driver and no cpuid leaf 16h: usual in a virtual machine, where the host controls the frequency"
                    .to_owned(),
            })
        })
    }

    fn counter_hz(&self, vendor: &Fact<String>) -> Fact<f64> {
        if self.is_arm() {
            let frequency = self.sources.root.is_live().then(kelvin_sys::cpuid::stated_counter_hz).flatten();
            return frequency
                .map(|hertz| Fact::known(hertz, "CNTFRQ_EL0"))
                .unwrap_or_else(|| Fact::unknown("CNTFRQ_EL0 can only be read on the running machine"));
        }
        let cpuid = self.sources.cpuid;
        // Time-stamp counter = crystal in ECX times EBX over EAX (Intel SDM volume 3B, 19.7.3).
        if let Some([denominator, numerator, crystal, _]) = cpuid.leaf(0x15, 0)
            && ![denominator, numerator, crystal].contains(&0)
        {
            let hertz = f64::from(crystal) * f64::from(numerator) / f64::from(denominator);
            return Fact::known(hertz, "cpuid leaf 15h");
        }
        // Kilohertz of the counter as stated by a hypervisor, a convention of VMware's.
        if cpuid.hypervisor_signature().is_some()
            && let Some([kilohertz, ..]) = cpuid.leaf(0x4000_0010, 0)
            && kilohertz > 0
        {
            return Fact::known(f64::from(kilohertz) * 1e3, "cpuid leaf 40000010h of the hypervisor");
        }
        // On AMD the kernel's fixed figure is the frequency of the counter itself.
        let is_amd = vendor.get().is_some_and(|vendor| ["AuthenticAMD", "HygonGenuine"].contains(&vendor.as_str()));
        self.constant_cpuinfo_mhz().filter(|_| is_amd).unwrap_or_else(|| {
            let reason = cpuid.unavailable_reason("15h");
            Fact::unknown(format!("{reason}, and no hypervisor states it in leaf 40000010h; a run calibrates it"))
        })
    }

    fn path(&self, name: &str) -> String {
        format!("/sys/devices/system/cpu/cpu{}/{name}", self.sources.number)
    }

    fn sysfs_frequency(&self, name: &str, factor: f64) -> Option<Fact<f64>> {
        let name = self.path(name);
        let value = self.sources.root.text(&name).and_then(|text| parse_number(&text)).filter(|value| *value > 0.0)?;
        Some(Fact::known(value * factor, name))
    }

    /// Processor frequency information: base in EAX, maximum in EBX, in megahertz.
    fn leaf_16h(&self, register: usize) -> Option<Fact<f64>> {
        let megahertz = self.sources.cpuid.leaf(0x16, 0)?[register] & 0xffff;
        (megahertz > 0).then(|| Fact::known(f64::from(megahertz) * 1e6, "cpuid leaf 16h"))
    }

    /// `... CPU @ 2.60GHz`, `...@2.2+GHz`.
    fn frequency_in_name(&self) -> Option<Fact<f64>> {
        let (_, after) = self.get("model name")?.rsplit_once('@')?;
        let gigahertz = parse_number(after.trim().strip_suffix("GHz")?.trim_end_matches('+'))?;
        (gigahertz > 0.0).then(|| Fact::known(gigahertz * 1e9, "model name in /proc/cpuinfo"))
    }

    /// Without cpufreq and APERF/MPERF, `cpu MHz` is the fixed figure that the kernel found at boot (`show_cpuinfo` in
    /// arch/x86/kernel/cpu/proc.c falls back to `cpu_khz`).
    fn constant_cpuinfo_mhz(&self) -> Option<Fact<f64>> {
        if self.contains_word("flags", "aperfmperf") || self.sources.root.exists("sys/devices/system/cpu/cpu0/cpufreq")
        {
            return None;
        }
        let megahertz = parse_number(self.get("cpu MHz")?).filter(|value| *value > 0.0)?;
        Some(Fact::known(megahertz * 1e6, "'cpu MHz' in /proc/cpuinfo, which is a constant without cpufreq"))
    }

    fn smbios_frequency(&self) -> Option<Fact<f64>> {
        let megahertz = self.sources.smbios.as_ref().ok()?.processor.as_ref()?.megahertz?;
        Some(Fact::known(f64::from(megahertz) * 1e6, "SMBIOS type 4, speed at boot"))
    }
}

/// Blocks of /proc/cpuinfo, one for each CPU.
pub(crate) fn parse_cpuinfo(text: &str) -> Vec<CpuinfoBlock> {
    let block = |text: &str| -> CpuinfoBlock {
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        pairs.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())).collect()
    };
    text.split("\n\n").map(block).filter(|block| !block.is_empty()).collect()
}

/// A decimal number, or a hexadecimal one after `0x`.
fn parse_integer(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn mitigations(root: FileRoot<'_>) -> Fact<Vec<Mitigation>> {
    let names = root.names(VULNERABILITIES);
    if names.is_empty() {
        return Fact::unknown(format!(
            "there is no /{VULNERABILITIES}: {}",
            root.absence_reason(VULNERABILITIES, "kernels since 4.15 have it")
        ));
    }
    let entries = names.into_iter().map(|name| {
        let status = root.read(&format!("{VULNERABILITIES}/{name}")).unwrap_or_else(|reason| reason);
        Mitigation { vulnerability: name, status }
    });
    Fact::known(entries.collect(), format!("/{VULNERABILITIES}"))
}

/// Vendor, family, models, steppings and name, by tabs.
const PROCESSORS: &str = include_str!("../data/processors.txt");

/// The microarchitecture of an x86 processor with its displayed family, model and stepping.
fn x86(vendor: &str, family: u32, model: u32, stepping: u32) -> Option<&'static str> {
    data_lines(PROCESSORS).find_map(|row| {
        let [row_vendor, families, models, steppings, name] = row.split('\t').collect::<Vec<_>>()[..] else {
            return None;
        };
        let has_numbers = [(families, family), (models, model), (steppings, stepping)]
            .into_iter()
            .all(|(list, number)| list == "*" || list.split(',').any(|range| is_in_range(range, number)));
        (row_vendor == vendor && has_numbers).then_some(name)
    })
}

/// `0x17` or `0x10-0x1f`.
fn is_in_range(range: &str, number: u32) -> bool {
    let hexadecimal = |text: &str| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    hexadecimal(first).zip(hexadecimal(last)).is_some_and(|(first, last)| (first..=last).contains(&number))
}

/// The microarchitecture of an Arm processor by implementer and part.
fn arm(implementer: u32, part: u32) -> Option<&'static str> {
    x86(&format!("{implementer:#04x}"), 0, part, 0)
}

/// The company behind an implementer code of the main ID register.
fn arm_implementer(code: u32) -> Option<&'static str> {
    known_name("arm_implementer", |key| key == format!("{code:#04x}"))
}

/// The Graviton generation by its core; valid only on Amazon EC2.
fn graviton(implementer: u32, part: u32) -> Option<&'static str> {
    known_name("graviton", |key| key == format!("{implementer:#04x} {part:#05x}"))
}

#[cfg(test)]
mod microarchitecture_tests {
    use super::*;

    #[test]
    fn x86_is_named_by_family_model_stepping() {
        assert_eq!(x86("AuthenticAMD", 26, 2, 1), Some("Zen 5"));
        assert_eq!(x86("AuthenticAMD", 0x17, 0x31, 0), Some("Zen 2"));
        assert_eq!(x86("AuthenticAMD", 0x17, 0x08, 2), Some("Zen+"));
        assert_eq!(x86("AuthenticAMD", 0x17, 0xa0, 0), Some("Zen 2"));
        assert_eq!(x86("AuthenticAMD", 0x17, 0x80, 0), None);
        assert_eq!(x86("AuthenticAMD", 0x1a, 0x50, 0), Some("Zen 6"));
        assert_eq!(x86("AuthenticAMD", 0x19, 0x01, 1), Some("Zen 3"));
        assert_eq!(x86("AuthenticAMD", 0x19, 0x11, 1), Some("Zen 4"));
        assert_eq!(x86("GenuineIntel", 6, 0x55, 4), Some("Skylake-SP"));
        assert_eq!(x86("GenuineIntel", 6, 0x55, 7), Some("Cascade Lake"));
        assert_eq!(x86("GenuineIntel", 6, 0x55, 11), Some("Cooper Lake"));
        assert_eq!(x86("GenuineIntel", 6, 0x8f, 8), Some("Sapphire Rapids"));
        assert_eq!(x86("GenuineIntel", 6, 0x2a, 7), Some("Sandy Bridge"));
        assert_eq!(x86("GenuineIntel", 6, 0x9e, 9), Some("Kaby Lake"));
        assert_eq!(x86("GenuineIntel", 6, 0x9e, 10), Some("Coffee Lake"));
        assert_eq!(x86("GenuineIntel", 0x13, 0x01, 0), Some("Diamond Rapids"));
        assert_eq!(x86("GenuineIntel", 6, 0xff, 0), None);
        assert_eq!(x86("CentaurHauls", 6, 0x2a, 0), None);
    }

    #[test]
    fn arm_is_named_by_implementer_and_part() {
        assert_eq!(arm(0x41, 0xd0c), Some("Neoverse N1"));
        assert_eq!(arm(0x41, 0xd40), Some("Neoverse V1"));
        assert_eq!(arm(0xc0, 0xac3), Some("Ampere-1"));
        assert_eq!(arm(0x6d, 0xd49), Some("Neoverse N2"));
        assert_eq!(arm(0x42, 0xd0c), None);
        assert_eq!(graviton(0x41, 0xd4f), Some("AWS Graviton4"));
        assert_eq!(arm_implementer(0xc0), Some("Ampere"));
    }

    #[test]
    fn processor_rows_are_complete() {
        for row in data_lines(PROCESSORS) {
            let columns: Vec<&str> = row.split('\t').collect();
            assert_eq!(columns.len(), 5, "{row}");
            for range in columns[1..4].iter().flat_map(|list| list.split(',')).filter(|range| *range != "*") {
                let first = u32::from_str_radix(range.split('-').next().unwrap().trim_start_matches("0x"), 16).unwrap();
                assert!(is_in_range(range, first), "{row}");
            }
        }
    }
}
