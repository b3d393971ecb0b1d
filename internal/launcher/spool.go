package launcher

// SpoolName is the file of a task's work directory in which its runner keeps its log until all of it is taken.
const SpoolName = "log-spool"
