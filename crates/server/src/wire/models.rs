//! `/v1/models`: the one model and what it can do.

use serde_json::{Value, json};

use crate::engine::Facts;

/// A prompt needs room beside an answer, so no client should ask for a whole context of new tokens.
const OUTPUT_SHARE: usize = 4;

/// One model.
pub fn model(id: &str, created: u64, facts: &Facts) -> Value {
    let most = (facts.context / OUTPUT_SHARE).max(1);
    json!({
        "id": id,
        "object": "model",
        "created": created,
        "owned_by": "ouzel",
        // What Anthropic's clients read.
        "type": "model",
        "display_name": id,
        "created_at": rfc3339(created),
        // Names that various clients look for.
        "context_length": facts.context,
        "max_model_len": facts.context,
        "max_output_tokens": most,
        "max_tokens": most,
        "capabilities": { "chat": true, "completions": true, "tools": true, "structured_output": true, "reasoning": true, "vision": false, "embeddings": false },
    })
}

/// The list.
pub fn list(ids: &[String], created: u64, facts: &Facts) -> Value {
    let data: Vec<Value> = ids.iter().map(|id| model(id, created, facts)).collect();
    json!({
        "object": "list",
        "first_id": ids.first(),
        "last_id": ids.last(),
        "has_more": false,
        "data": data,
    })
}

/// Seconds since 1970 as a date, by the days of the civil calendar (Howard Hinnant's `civil_from_days`).
fn rfc3339(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn seconds_become_dates() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_735_689_600, "2025-01-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), expected);
        }
    }
}
