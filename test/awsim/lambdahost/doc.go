// Package lambdahost runs built Lambda functions on this machine as AWS Lambda runs them: it speaks
// the Runtime API to the real bootstrap files, as child processes with the environment that Lambda
// gives them, and it delivers to them what Lambda delivers.
//
// What it keeps of the service, because a function can be wrong about it:
//
//   - One execution environment serves one invocation at a time. It is used again while it is
//     warm, stopped (SIGSTOP) between invocations so that nothing runs in the background, and
//     ended when it has been idle for long, at a time-out, at a crash, or on demand (Inject, Kill).
//   - Init may take 10 s; what fails or is too slow is tried once more on the invocation's own time.
//   - A caller that goes away does not end an invocation. What an environment does after its
//     answer belongs to the invocation until it asks for the next one.
//   - Payloads, answers and environment variables have Lambda's limits. Concurrency has too: a call beyond it is
//     refused with TooManyRequestsException.
//   - Asynchronous events wait in a queue, are retried twice after errors and until their age is reached after
//     throttles, are delivered at least once (twice on demand), and end in a failure destination.
//
// What it does not keep: memory is measured and never enforced, the processor is not throttled,
// there are no layers, extensions, streams of answers, versions or aliases, and no IAM.
//
// The protocol is that of https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html. Time-outs
// of processes run on the machine's clock, everything longer (event age, retries, idleness, schedules) on
// Config.Clock.
package lambdahost
