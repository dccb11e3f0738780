//! Room on the disk: what an installation still takes, and what stays free.

use std::path::Path;

use ouzel_storage::Disk;

use crate::InstallError;
use crate::plan::Plan;

/// The most that is left free on the disk beside the files of a model, in bytes: for its records, and for whoever else writes meanwhile.
const MAX_RESERVE_BYTES: u64 = 1 << 30;
/// A small model needs no more reserve than this part of its size.
const RESERVE_SHARE: u64 = 8;

/// What a plan needs of a disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// What the planned files take already: recorded or not, it is not needed twice.
    pub taken_bytes: u64,
    /// What they do not take yet.
    pub missing_bytes: u64,
    /// What stays free in any case.
    pub reserve_bytes: u64,
    /// What is free.
    pub free_bytes: u64,
}

impl Room {
    /// Looks at the disk of `output`, and at the planned files as far as they lie in `folder`.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn of(
        disk: &dyn Disk,
        (output, folder): (&Path, &Path),
        plan: &Plan,
    ) -> Result<Room, InstallError> {
        let (mut taken_bytes, mut missing_bytes) = (0, 0);
        for file in &plan.files {
            // A disk counts whole blocks.
            let taken = disk.taken(&folder.join(&file.path))?.min(file.size());
            taken_bytes += taken;
            missing_bytes += file.size() - taken;
        }
        Ok(Room {
            taken_bytes,
            missing_bytes,
            reserve_bytes: (plan.size() / RESERVE_SHARE).min(MAX_RESERVE_BYTES),
            free_bytes: disk.free_space(output)?,
        })
    }

    /// Whether there is enough.
    ///
    /// # Errors
    /// [`InstallError::NoRoom`].
    pub(crate) fn check(&self, output: &Path) -> Result<(), InstallError> {
        let needed = self.missing_bytes + self.reserve_bytes;
        if self.free_bytes < needed {
            return Err(InstallError::NoRoom {
                path: output.to_owned(),
                needed,
                reserve: self.reserve_bytes,
                free: self.free_bytes,
            });
        }
        Ok(())
    }
}
