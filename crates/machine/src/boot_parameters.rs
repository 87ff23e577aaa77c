//! Boot parameters that affect measurements: a run records these and only counts the others, which may name disks,
//! hosts, users and secrets.

use crate::root::data_lines;

/// Those that a run records, by what they change.
const RECORDED_PARAMETERS: &str = include_str!("../data/boot_parameters.txt");

/// The parameters of a boot line that affect measurements, in their order, and the number of others.
pub fn boot_parameters(line: &str) -> (String, u32) {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    // What follows goes to init, not to the kernel.
    let own = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    let kept: Vec<&str> = words[..own].iter().copied().filter(|word| is_recorded(word)).collect();
    let left_out = words.iter().filter(|word| **word != "--").count() - kept.len();
    (kept.join(" "), u32::try_from(left_out).unwrap_or(u32::MAX))
}

fn is_recorded(word: &str) -> bool {
    let name = word.split('=').next().unwrap_or_default().replace('-', "_");
    data_lines(RECORDED_PARAMETERS).any(|kept| {
        // The kernel treats `-` and `_` alike.
        let kept = kept.replace('-', "_");
        name == kept || kept.ends_with('.') && name.starts_with(&kept)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlisted_parameters_are_only_counted() {
        let line = "BOOT_IMAGE=/vmlinuz root=UUID=1c2d-33 ro quiet mitigations=off isolcpus=2-3 nohz_full=2-3 hugepages=16 \
                    kvm-intel.ept=1 rcutree.kthread_prio=1 ip=10.0.0.5::10.0.0.1 password=x -- --addr 10.0.0.7 nosmt";
        let expected = "mitigations=off isolcpus=2-3 nohz_full=2-3 hugepages=16 kvm-intel.ept=1 rcutree.kthread_prio=1";
        assert_eq!(boot_parameters(line), (expected.into(), 9));
        assert_eq!(boot_parameters(expected), (expected.into(), 0), "what is kept stays");
        assert_eq!(boot_parameters(""), (String::new(), 0));
        assert_eq!(boot_parameters("mitigationsx=off xmitigations=off kvm=1"), (String::new(), 3));
    }

    #[test]
    fn parameter_names_are_unique() {
        let mut names: Vec<&str> = data_lines(RECORDED_PARAMETERS).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
