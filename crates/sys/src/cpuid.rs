//! The processor's own statements about itself: cpuid on x86-64, the counter's frequency on aarch64.

use crate::{Result, cpu};

/// The registers `[eax, ebx, ecx, edx]` that cpuid gives for a leaf and sub-leaf on the CPU this runs on; `None` on
/// architectures without cpuid. Whether the leaf exists is the caller's question to leaf 0, 8000_0000h or 4000_0000h:
/// Intel answers a basic leaf that does not exist with the highest one (Intel SDM volume 2A, CPUID).
#[cfg(target_arch = "x86_64")]
pub fn leaf(leaf: u32, subleaf: u32) -> Option<[u32; 4]> {
    // Newer compilers have made this call safe, older ones that we support have not.
    #[allow(unused_unsafe)]
    // SAFETY: every x86-64 processor has the cpuid instruction, and it only reads.
    let answer = unsafe { std::arch::x86_64::__cpuid_count(leaf, subleaf) };
    Some([answer.eax, answer.ebx, answer.ecx, answer.edx])
}

/// No cpuid on this architecture: always `None`.
#[cfg(not(target_arch = "x86_64"))]
pub fn leaf(_leaf: u32, _subleaf: u32) -> Option<[u32; 4]> {
    None
}

/// The same of a CPU, on which the calling thread is for that time: cores of several kinds describe different TLBs and frequencies.
///
/// # Errors
/// Those of a CPU that this process may not use.
pub fn leaf_of_cpu(cpu: u32, leaf_number: u32, subleaf: u32) -> Result<Option<[u32; 4]>> {
    let before = cpu::affinity()?;
    cpu::pin(&[cpu])?;
    let answer = leaf(leaf_number, subleaf);
    cpu::pin(&before).map(|()| answer)
}

/// Frequency in hertz that the firmware states for the virtual counter (`CNTFRQ_EL0`, Arm ARM D24); `None` where there
/// is no such register or the firmware left it zero.
#[cfg(target_arch = "aarch64")]
pub fn stated_counter_hz() -> Option<f64> {
    let hertz: u64;
    // SAFETY: Linux lets user space read CNTFRQ_EL0, and the read has no effect but its result.
    unsafe { std::arch::asm!("mrs {}, cntfrq_el0", out(reg) hertz, options(nomem, nostack, preserves_flags)) };
    (hertz != 0).then_some(hertz as f64)
}

/// No such register on this architecture: always `None`.
#[cfg(not(target_arch = "aarch64"))]
pub fn stated_counter_hz() -> Option<f64> {
    None
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn leaf_zero_names_a_vendor_in_ascii() {
        let [max_leaf, b, c, d] = super::leaf(0, 0).unwrap();
        let vendor: Vec<u8> = [b, d, c].iter().flat_map(|register| register.to_le_bytes()).collect();
        assert!(max_leaf >= 1);
        assert!(vendor.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' '), "{vendor:?}");
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn leaf_of_each_cpu_has_its_own_apic_id() {
        let allowed = crate::cpu::affinity().unwrap();
        // Bits 31 to 24 of EBX are the initial local APIC ID: of more than 256 CPUs some have the same.
        let apic_id = |cpu: u32| super::leaf_of_cpu(cpu, 1, 0).unwrap().unwrap()[1] >> 24;
        let mut ids: Vec<u32> = allowed.iter().take(256).map(|&cpu| apic_id(cpu)).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), allowed.len().min(256));
        assert_eq!(crate::cpu::affinity().unwrap(), allowed);
        assert!(super::leaf_of_cpu(8000, 0, 0).is_err());
    }

    #[test]
    #[cfg(not(target_arch = "x86_64"))]
    fn cpuid_is_absent() {
        assert_eq!(super::leaf(0, 0), None);
    }
}
