package main

import (
	"log/slog"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsecs "github.com/aws/aws-sdk-go-v2/service/ecs"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/functions/internal/launches"
	"github.com/dayfly-dev/dayfly/internal/dispatcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/ecs"
	"github.com/dayfly-dev/dayfly/internal/poller"
)

// share is the part of the pool's launch rate that the poller may use. The dispatcher has all of the rate: a poller
// launches only while the queue is short.
const share = 0.25

// direct is how the poller launches by itself. Its settings are those of the dispatcher.
type direct struct {
	on       bool
	tasks    ecs.Config
	launches dispatcher.Config
}

// readDirect reads nothing more where DAYFLY_DIRECT_LAUNCH is not true.
func readDirect(env *boot.Env) (d direct) {
	if d.on = env.Bool("DAYFLY_DIRECT_LAUNCH", false); d.on {
		d.tasks = launches.Tasks(env)
		d.launches = launches.Dispatcher(env, d.tasks, share)
	}
	return d
}

// open returns nil where it is off.
func (d direct) open(cfg aws.Config, upstream dispatcher.Upstream, log *slog.Logger) (poller.Direct, error) {
	if !d.on {
		return nil, nil
	}
	d.tasks.Log, d.launches.Log = log, log
	tasks, err := ecs.New(awsecs.NewFromConfig(cfg), d.tasks)
	if err != nil {
		return nil, err
	}
	return dispatcher.New(nil, tasks, upstream, d.launches)
}
