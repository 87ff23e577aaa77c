//! The advertised link speeds of a machine's network interfaces, as inputs of predictions.

use kelvin_core::{Input, Machine, Nic, Unit};

/// The fastest advertised link speed, in bytes per second, and its interface; `None` if no interface advertises one.
pub(crate) fn fastest_link(machine: &Machine) -> Option<(Input, &Nic)> {
    let claims = machine.nics.iter().filter_map(|nic| {
        let bits = *nic.bits_per_second.get().filter(|bits| **bits > 0.0)?;
        let source = nic.bits_per_second.source_or_reason().to_owned();
        let name = format!("rate of {}", nic.name);
        Some((Input { name, value: bits / 8.0, unit: Unit::BytesPerSecond, source }, nic))
    });
    claims.max_by(|(one, _), (other, _)| one.value.total_cmp(&other.value))
}

#[cfg(test)]
mod tests {
    use kelvin_core::Fact;

    use super::*;
    use crate::testing::{machine, nic};

    #[test]
    fn fastest_advertised_link_speed_is_used() {
        let mut machine = machine();
        assert!(fastest_link(&machine).is_none());
        machine.nics = vec![
            nic("lo", Fact::unknown("has no speed")),
            nic("eth0", Fact::known(1e9, "ethtool")),
            nic("eth1", Fact::known(1e8, "ethtool")),
            nic("eth2", Fact::known(-1.0, "ethtool")),
        ];
        let (rate, nic) = fastest_link(&machine).unwrap();
        assert_eq!((rate.name.as_str(), rate.value, nic.name.as_str()), ("rate of eth0", 125e6, "eth0"));
        assert_eq!(rate.source, "ethtool");
    }
}
