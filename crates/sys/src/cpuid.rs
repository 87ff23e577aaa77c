//! The processor's own statements about itself: cpuid on x86-64, the counter's frequency on aarch64.

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
    #[cfg(not(target_arch = "x86_64"))]
    fn cpuid_is_absent() {
        assert_eq!(super::leaf(0, 0), None);
    }
}
