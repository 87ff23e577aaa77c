//! A remote directory: the share of each block's time spent getting there.

use kelvin_catalogue::file::{REMOTE, REMOTE_SHARE};
use kelvin_model::ShareQuestion;

use crate::evidence::{Beyond, Evidence, share};
use crate::result::Study;

/// Conclusions from the metric `file.remote.share`.
pub(crate) fn remote(evidence: &Evidence<'_>) -> Option<Study> {
    let shares = evidence.all(&REMOTE_SHARE);
    let conclusions =
        shares.iter().filter_map(|shares| share(ShareQuestion::RemoteWay, shares.side(), shares, 0.0, Beyond::Above));
    let design = "Blocks of 4 KiB were read in turn from a file in a remote directory and from one of the same size on this \
                  machine, in several rounds.";
    Study::new(REMOTE.id, design, conclusions.collect())
}
