//! At which points a process shall end.

use crate::{CrashPoint, Error, Side};

/// The armed crash points of a process; none by default.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CrashPlan {
    armed: Vec<(CrashPoint, Option<String>)>,
}

impl CrashPlan {
    /// Reads texts of the form `NAME[:TRANSACTION_ID]`, as `--crash-at` takes them. An id may contain colons.
    ///
    /// # Errors
    /// The first text with an unknown name, listing the names there are, or with an empty id.
    pub fn parse<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Result<Self, Error> {
        let armed = texts.into_iter().map(|text| {
            let text = text.as_ref();
            match text.split_once(':') {
                None => Ok((text.parse()?, None)),
                Some((_, "")) => Err(Error::EmptyTransactionId {
                    given: text.to_owned(),
                }),
                Some((name, id)) => Ok((name.parse()?, Some(id.to_owned()))),
            }
        });
        Ok(Self {
            armed: armed.collect::<Result<_, Error>>()?,
        })
    }

    /// The plan, if every point of it is one that a process of this side can reach.
    ///
    /// # Errors
    /// The first one that is not, listing those that are.
    pub fn of_side(self, side: Side) -> Result<Self, Error> {
        match self.armed.iter().find(|(point, _)| point.side() != side) {
            Some((point, _)) => Err(Error::OtherSide { point: *point, side }),
            None => Ok(self),
        }
    }

    /// Whether nothing is armed: the only question to ask on a hot path.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.armed.is_empty()
    }

    /// Whether the point is armed, for any transaction at all.
    #[must_use]
    pub fn is_armed(&self, point: CrashPoint) -> bool {
        self.armed.iter().any(|(armed, _)| *armed == point)
    }

    /// Whether the process shall end now: the point is armed without an id, or with this one.
    #[must_use]
    pub fn hit(&self, point: CrashPoint, transaction_id: Option<&str>) -> bool {
        self.armed
            .iter()
            .any(|(armed, only)| *armed == point && (only.is_none() || only.as_deref() == transaction_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(texts: &[&str]) -> CrashPlan {
        CrashPlan::parse(texts).unwrap()
    }

    #[test]
    fn nothing_is_armed_by_default() {
        assert!(CrashPlan::default().is_empty());
        assert_eq!(plan(&[]), CrashPlan::default());
        for point in CrashPoint::ALL {
            assert!(!CrashPlan::default().hit(*point, Some("T1")) && !CrashPlan::default().is_armed(*point));
        }
    }

    #[test]
    fn point_without_an_id_is_hit_by_everything_and_no_other_point() {
        let plan = plan(&["c.commit.forced"]);
        assert!(!plan.is_empty() && plan.is_armed(CrashPoint::CCommitForced));
        assert!(plan.hit(CrashPoint::CCommitForced, None) && plan.hit(CrashPoint::CCommitForced, Some("T1")));
        assert!(!plan.hit(CrashPoint::CCommitAppended, Some("T1")));
    }

    #[test]
    fn point_with_an_id_is_hit_by_that_id_only() {
        let plan = plan(&["p.vote.sent:a:b", "p.ack.sent"]);
        assert!(plan.hit(CrashPoint::PVoteSent, Some("a:b")) && plan.is_armed(CrashPoint::PVoteSent));
        assert!(!plan.hit(CrashPoint::PVoteSent, Some("a")) && !plan.hit(CrashPoint::PVoteSent, None));
        assert!(plan.hit(CrashPoint::PAckSent, Some("a")));
    }

    #[test]
    fn refused_plan_says_which_names_there_are() {
        let message = CrashPlan::parse(["c.commit.forced", "c.nowhere"])
            .unwrap_err()
            .to_string();
        assert!(message.contains("\"c.nowhere\""), "{message}");
        for point in CrashPoint::ALL {
            assert!(message.contains(point.name()), "{message}");
        }
        let message = CrashPlan::parse(["c.commit.forced:"]).unwrap_err().to_string();
        assert!(message.contains("NAME:TRANSACTION_ID"), "{message}");
    }

    #[test]
    fn a_point_that_the_process_never_reaches_is_refused_with_those_it_does() {
        for (side, own, other) in [
            (Side::Participant, "p.vote.sent", "c.commit.forced"),
            (Side::Coordinator, "c.commit.forced", "p.vote.sent"),
        ] {
            assert_eq!(plan(&[own]).of_side(side), Ok(plan(&[own])));
            assert_eq!(plan(&[]).of_side(side), Ok(plan(&[])));
            let refused = plan(&[own, other]).of_side(side).unwrap_err().to_string();
            for point in CrashPoint::ALL {
                let named = point.side() == side || point.name() == other;
                assert_eq!(refused.contains(point.name()), named, "{point}: {refused}");
            }
        }
    }
}
