/*
 * outcome.h - how a request ended, for the client's side of the promise.
 */
#pragma once

enum outcome {
    OUTCOME_OK,           /* completed; good or late is decided by the SLO */
    OUTCOME_CLIENT_FAULT, /* 4xx: the client's own, ours or relayed; not in the attainment */
    OUTCOME_ABANDONED,    /* the client left (499); counted apart */
    OUTCOME_SHED,   /* weir refused for lack of capacity: 503/529 before any engine answered */
    OUTCOME_FAILED, /* 5xx, truncation, timeout */
    OUTCOMES
};

/* The word in logs and labels. Static lifetime. */
static inline const char *outcome_name(enum outcome outcome)
{
    static const char *const names[OUTCOMES] = {[OUTCOME_OK] = "ok",
                                                [OUTCOME_CLIENT_FAULT] = "client_fault",
                                                [OUTCOME_SHED] = "shed",
                                                [OUTCOME_ABANDONED] = "abandoned",
                                                [OUTCOME_FAILED] = "failed"};
    return names[outcome];
}
