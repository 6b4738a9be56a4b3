-- Change an account's state. An untracked account stays untracked.
-- :user_id bigint, :now time, :next_look_at time
UPDATE accounts
SET state_since = CASE WHEN state = :state THEN state_since ELSE :now END,
    state = :state,
    state_reason = :reason,
    next_look_at = :next_look_at
WHERE platform = :platform AND user_id = :user_id AND state <> 'untracked'
