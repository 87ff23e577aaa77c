//! Mitigations that lengthen a kernel entry or a return, from what the kernel reports of each vulnerability.

use std::fmt;

use serde::Deserialize;

/// A mitigation in force that kernel entries, returns or indirect calls pay for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActiveMitigation {
    /// Indirect calls whose targets are aligned against target selection (ITS).
    AlignedThunks,
    /// The branch history is overwritten or separated at each entry.
    BranchHistory,
    /// Buffers are cleared at each return to user mode (MDS, TAA, MMIO, RFDS, TSA).
    ClearCpuBuffers,
    /// Speculation is restricted by a mode that stays on.
    EnhancedIbrs,
    /// Speculation is restricted by a write to a register at each entry.
    EntryIbrs,
    /// User mode runs with page tables of its own.
    PageTableIsolation,
    /// Indirect calls go through a return.
    Retpolines,
    /// Each return goes through one that cannot be mistrained (SRSO).
    SafeReturn,
    /// Each return goes through one that is untrained at each entry (Retbleed).
    UntrainedReturnThunk,
}

/// Vulnerabilities whose mitigation is that buffers are cleared.
const BUFFER_CLEARING_FILES: [&str; 6] = [
    "mds",
    "tsx_async_abort",
    "mmio_stale_data",
    "reg_file_data_sampling",
    "tsa",
    "special_register_buffer_data_sampling",
];

impl ActiveMitigation {
    /// What is in force by one file of `/sys/devices/system/cpu/vulnerabilities`: its name and its text. Attempts without new microcode
    /// count, since the kernel pays for them all the same.
    ///
    /// Source: the texts in Linux `arch/x86/kernel/cpu/bugs.c` and `arch/arm64/kernel/proton-pack.c`.
    pub fn from_status(vulnerability: &str, status: &str) -> Vec<Self> {
        let has_part = |part: &str| status.contains(part);
        match vulnerability {
            "meltdown" if has_part("PTI") => vec![Self::PageTableIsolation],
            "retbleed" if has_part("untrained return thunk") => vec![Self::UntrainedReturnThunk],
            "retbleed" if status == "Mitigation: IBRS" => vec![Self::EntryIbrs],
            "spec_rstack_overflow" if has_part("Safe RET") => vec![Self::SafeReturn],
            "indirect_target_selection" if has_part("Aligned branch") => vec![Self::AlignedThunks],
            "spectre_v2" => parse_spectre_v2(status),
            buffers if BUFFER_CLEARING_FILES.contains(&buffers) && has_part("Clear CPU buffers") => {
                vec![Self::ClearCpuBuffers]
            }
            _ => Vec::new(),
        }
    }
}

/// The parts of that line: the kernel's own branches first, then the branch history.
fn parse_spectre_v2(status: &str) -> Vec<ActiveMitigation> {
    let mut mitigations = Vec::new();
    let branches = status.split(';').next().unwrap_or_default();
    if branches.contains("Retpoline") {
        mitigations.push(ActiveMitigation::Retpolines);
    }
    if branches.contains("Enhanced") {
        mitigations.push(ActiveMitigation::EnhancedIbrs);
    } else if branches.contains("IBRS") {
        mitigations.push(ActiveMitigation::EntryIbrs);
    }
    if status.contains("BHI: SW loop") || status.contains("BHI: BHI_DIS_S") || status.ends_with("BHB") {
        mitigations.push(ActiveMitigation::BranchHistory);
    }
    mitigations
}

impl fmt::Display for ActiveMitigation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::AlignedThunks => "aligned thunks",
            Self::BranchHistory => "branch history",
            Self::ClearCpuBuffers => "cleared buffers",
            Self::EnhancedIbrs => "enhanced IBRS",
            Self::EntryIbrs => "IBRS at each entry",
            Self::PageTableIsolation => "page-table isolation",
            Self::Retpolines => "retpolines",
            Self::SafeReturn => "safe returns",
            Self::UntrainedReturnThunk => "untrained returns",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::ActiveMitigation::{self, *};

    #[test]
    fn status_lines_parse_to_mitigations() {
        let cases: [(&str, &str, &[ActiveMitigation]); 9] = [
            ("meltdown", "Mitigation: PTI", &[PageTableIsolation]),
            ("meltdown", "Not affected", &[]),
            (
                "mds",
                "Vulnerable: Clear CPU buffers attempted, no microcode; SMT Host state unknown",
                &[ClearCpuBuffers],
            ),
            ("retbleed", "Mitigation: Enhanced IBRS", &[]),
            ("retbleed", "Mitigation: untrained return thunk; SMT disabled", &[UntrainedReturnThunk]),
            ("spec_rstack_overflow", "Vulnerable: Safe RET, no microcode", &[SafeReturn]),
            (
                "spectre_v2",
                "Mitigation: Retpolines; STIBP: disabled; RSB filling; PBRSB-eIBRS: Not affected; BHI: Retpoline",
                &[Retpolines],
            ),
            (
                "spectre_v2",
                "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional; PBRSB-eIBRS: SW sequence; BHI: SW loop, KVM: SW loop",
                &[EnhancedIbrs, BranchHistory],
            ),
            ("spectre_v2", "Mitigation: CSV2, BHB", &[BranchHistory]),
        ];
        for (vulnerability, status, expected) in cases {
            assert_eq!(ActiveMitigation::from_status(vulnerability, status), expected, "{vulnerability}: {status}");
        }
    }
}
