//! A machine of the library, its figures, and where they are from.

use std::collections::BTreeSet;
use std::fmt;

use kelvin_core::{Case, Name};
use serde::{Deserialize, Deserializer};

use crate::ActiveMitigation;

/// Where figures are from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedSource {
    /// Name, as of its file.
    pub id: Name,
    /// What it is.
    pub title: String,
    /// Address.
    pub url: String,
    /// Version that was read, where it is a repository.
    pub commit: Option<String>,
    /// Day on which it was read: `2026-11-28`.
    pub read: String,
}

/// How a source measured, and how far that may lie from kelvin's own figure.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceMethod {
    /// Name within its source.
    pub id: Name,
    /// The program.
    pub tool: String,
    /// What it does otherwise than kelvin.
    pub differs: String,
    /// The factor, above 1, within which both lie in nine of ten cases.
    pub factor: f64,
}

/// What a machine is built as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineKind {
    /// A server, or a part of one.
    Server,
    /// A desktop or small computer with a case.
    Desktop,
    /// A laptop.
    Laptop,
    /// A single board, or a phone.
    Board,
}

/// Whether the system has the hardware to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Virtualisation {
    /// It has.
    BareMetal,
    /// It is a virtual machine.
    Guest,
    /// The source does not state it.
    NotStated,
}

/// One machine at one time: a published set of figures.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LibraryMachine {
    /// Name, unique in the library: `hetzner-cax11`.
    pub id: Name,
    /// What it is, for people.
    pub name: String,
    /// The processor, as the source states it.
    pub cpu: String,
    /// Generation of the core that was measured, by kelvin's names of microarchitectures.
    pub core: Name,
    /// What it is built as.
    pub kind: MachineKind,
    /// Whether it is a virtual machine.
    pub instance: Virtualisation,
    /// The hypervisor, as the source states it.
    pub hypervisor: Option<String>,
    /// CPUs that the system has.
    pub cpus: Option<u32>,
    /// Kind of memory, where the source states it: `DDR4`.
    pub memory: Option<Name>,
    /// Memory channels, where the source states them.
    pub channels: Option<u32>,
    /// Release of its Linux, where the source states it.
    pub kernel: Option<String>,
    /// Bytes of a base page, where the source states them and they are not 4096.
    pub base_page: Option<u64>,
    /// Mitigations in force that cost kernel entries; `None` where the source does not state them.
    pub mitigations: Option<BTreeSet<ActiveMitigation>>,
    /// Year of the measurement, where the source states it.
    pub measured: Option<u16>,
    /// Its source.
    #[serde(skip)]
    pub source: PublishedSource,
    /// Its place in the source: a path, or the id of a message.
    pub at: String,
    /// Its figures.
    pub rows: Vec<PublishedFigure>,
}

/// A published figure that means the same as one of kelvin's.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedFigure {
    /// Id of kelvin's metric.
    pub metric: Name,
    /// Its case.
    #[serde(default)]
    pub case: Case,
    /// The figure in the base unit of the SI: seconds, hertz, bytes per second, operations per second.
    pub value: f64,
    /// How it was measured.
    #[serde(deserialize_with = "deserialize_method_id")]
    pub method: SourceMethod,
    /// The figure as published, where its value was computed from it.
    pub published: Option<String>,
}

/// A method of which a row of a file states no more than the id.
fn deserialize_method_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SourceMethod, D::Error> {
    let id = Name::deserialize(deserializer)?;
    Ok(SourceMethod { id, tool: String::new(), differs: String::new(), factor: 1.0 })
}

impl LibraryMachine {
    /// The figure of a metric at a case.
    pub fn figure(&self, metric: Name, case: &Case) -> Option<&PublishedFigure> {
        self.rows.iter().find(|row| row.metric == metric && row.case == *case)
    }
}

impl fmt::Display for MachineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Server => "server",
            Self::Desktop => "desktop",
            Self::Laptop => "laptop",
            Self::Board => "board",
        })
    }
}

impl fmt::Display for Virtualisation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::BareMetal => "bare metal",
            Self::Guest => "guest",
            Self::NotStated => "not stated",
        })
    }
}
