//! What `kelvin-cluster net` says of all pairs of hosts, as its file of results has it: the pairs as matrices, with what they predict of each
//! other, and what is slow.

use serde::{Deserialize, Serialize};

/// The format of the file of results: one JSON object in each line. Raised when a field changes its meaning.
pub const RESULTS_FORMAT: &str = "kelvin-cluster 1";

/// How bytes move between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// A TCP connection of kelvin's own.
    Tcp,
    /// The site's MPI, by whatever it uses.
    Mpi,
}

impl Transport {
    /// As people write it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Mpi => "MPI",
        }
    }
}

/// What of a pair is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Payload of large messages in one direction, in bytes per second.
    BytesPerSecond,
    /// A small message and its answer: the median, in nanoseconds.
    RoundTripNs,
}

/// What all other pairs predict.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// The predicted value.
    pub value: f64,
    /// The lower end of the range that holds 95 % of such pairs.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// A pair in a matrix: the median of its passes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The sender; of a round trip the lower rank.
    pub from: usize,
    /// The receiver.
    pub to: usize,
    /// The value, in the unit of the quantity.
    pub value: f64,
    /// The prediction; none of too few hosts.
    pub expected: Option<Expected>,
    /// Whether other programs took the CPUs of its hosts in each pass: then it is not judged. Older files do not say it.
    #[serde(default)]
    pub is_disturbed: bool,
}

/// All pairs by one quantity over one transport.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairMatrix {
    /// The transport.
    pub transport: Transport,
    /// The quantity.
    pub quantity: Quantity,
    /// The pairs that were measured.
    pub cells: Vec<Cell>,
    /// Relative standard deviation of pairs around what their hosts explain; unknown of too few hosts.
    pub deviation: Option<f64>,
}

impl PairMatrix {
    /// The value from one rank to another, either way of a quantity without direction.
    pub fn cell(&self, from: usize, to: usize) -> Option<&Cell> {
        let is_directed = self.quantity == Quantity::BytesPerSecond;
        let key = if is_directed { (from, to) } else { (from.min(to), from.max(to)) };
        self.cells.binary_search_by_key(&key, |cell| (cell.from, cell.to)).ok().map(|index| &self.cells[index])
    }
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The link between two hosts, from one to the other; of a round trip in both directions.
    Link {
        /// The sender.
        from: usize,
        /// The receiver.
        to: usize,
    },
    /// A host as a sender.
    Sender(usize),
    /// A host as a receiver.
    Receiver(usize),
    /// A host, in both directions.
    Host(usize),
}

impl Subject {
    /// The ranks that it names.
    pub fn ranks(self) -> Vec<usize> {
        match self {
            Self::Link { from, to } => vec![from, to],
            Self::Sender(rank) | Self::Receiver(rank) | Self::Host(rank) => vec![rank],
        }
    }
}

/// A link or host that is slower than the others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlowSubject {
    /// The link or host.
    pub subject: Subject,
    /// The transport.
    pub transport: Transport,
    /// The quantity.
    pub quantity: Quantity,
    /// The value of the link, or the median of the host's pairs.
    pub value: f64,
    /// What the other pairs predict, or the value times the factor by which other hosts differ.
    pub expected: Expected,
    /// Chance of such a difference by accident, corrected for all tests of the job (Benjamini and Hochberg).
    pub p_value: f64,
}

/// What the pairs say together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// One matrix for each transport and quantity that was measured.
    pub matrices: Vec<PairMatrix>,
    /// Slow links and hosts, the slowest first.
    pub findings: Vec<SlowSubject>,
}
