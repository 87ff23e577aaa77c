//! A report of a fleet as OpenMetrics text: which hosts are out, and by what.

use std::io;

use kelvin_fleet::{FleetGroup, FleetReport};

use crate::exports::openmetrics::{Labels, Sample, sample, series_labels, write_families};

/// Writes a report of a fleet as OpenMetrics text.
///
/// # Errors
/// Those of the writer.
pub fn write_openmetrics(report: &FleetReport, out: &mut dyn io::Write) -> io::Result<()> {
    let mut samples: Vec<Sample> = Vec::new();
    for group in &report.groups {
        samples.extend(group_samples(group, report));
    }
    let not_compared: usize = report.not_compared.iter().map(|group| group.hosts.len()).sum();
    let help = "Hosts that have too few peers to be compared with.";
    samples.push(sample("fleet_hosts_not_compared", "", help, (Vec::new(), not_compared as f64)));
    write_families(&samples, out)
}

fn group_samples(group: &FleetGroup, report: &FleetReport) -> Vec<Sample> {
    let in_group = |labels: &[(&str, &str)]| -> Labels {
        let group = ("group", group.name.as_str());
        std::iter::once(&group).chain(labels).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let mut samples = vec![
        sample("fleet_hosts", "", "Hosts that should be alike.", (in_group(&[]), group.hosts as f64)),
        sample("fleet_outliers", "", "Hosts that are out.", (in_group(&[]), group.outliers.len() as f64)),
    ];
    for host in &group.deviations.hosts {
        let is_out = group.outliers.iter().any(|outlier| outlier.label == *host);
        let value = (in_group(&[("host", host)]), f64::from(u8::from(is_out)));
        samples.push(sample("fleet_outlier", "", "Whether a host is out of its group.", value));
    }
    for host in group.acceptance.iter().filter(|_| report.like.is_some()) {
        let value = (in_group(&[("host", &host.label)]), f64::from(u8::from(host.is_accepted)));
        samples.push(sample("fleet_accepted", "", "Whether a host shows what the reference hosts show.", value));
    }
    for outlier in &group.outliers {
        for figure in &outlier.figures {
            let mut labels = in_group(&[("host", &outlier.label)]);
            labels.extend(series_labels(figure.metric.id, &figure.case));
            let help = "A figure that is out, over the median of its peers.";
            samples.push(sample("fleet_figure", "ratio", help, (labels, figure.ratio)));
        }
    }
    samples
}
