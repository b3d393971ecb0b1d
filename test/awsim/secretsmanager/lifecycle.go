package secretsmanager

import (
	"context"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

func (s *Service) describeSecret(_ context.Context, c wire.Call) (any, error) {
	in, err := wire.Decode[input](c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one, err := s.find(in.SecretID) // also one that was marked for deletion
	if err != nil {
		return nil, err
	}
	stages := map[string][]string{}
	for _, v := range one.versions {
		if len(v.stages) > 0 {
			stages[v.id] = v.stages
		}
	}
	out := map[string]any{
		"ARN": one.arn, "Name": one.name, "CreatedDate": wire.Time(one.created), "LastChangedDate": wire.Time(one.changed),
		"VersionIdsToStages": stages, "RotationEnabled": false, "Tags": one.tags,
	}
	for name, value := range map[string]string{"Description": one.description, "KmsKeyId": one.kmsKey} {
		if value != "" {
			out[name] = value
		}
	}
	if !one.deleted.IsZero() {
		out["DeletedDate"] = wire.Time(one.deleted)
	}
	return out, nil
}

func (s *Service) listSecretVersionIDs(_ context.Context, c wire.Call) (any, error) {
	return s.with(c, func(in input, one *secret, _ time.Time) (any, error) {
		versions := []map[string]any{}
		for _, v := range one.versions {
			if len(v.stages) > 0 || in.IncludeDeprecated {
				versions = append(versions, map[string]any{"VersionId": v.id, "VersionStages": v.stages, "CreatedDate": wire.Time(v.created)})
			}
		}
		return map[string]any{"ARN": one.arn, "Name": one.name, "Versions": versions}, nil
	})
}

func (s *Service) deleteSecret(_ context.Context, c wire.Call) (any, error) {
	return s.with(c, func(in input, one *secret, now time.Time) (any, error) {
		days := 30
		if in.RecoveryWindowInDays != nil {
			days = *in.RecoveryWindowInDays
		}
		switch {
		case in.ForceDeleteWithoutRecovery && in.RecoveryWindowInDays != nil:
			return nil, failure("InvalidParameterException", "You can't use ForceDeleteWithoutRecovery in conjunction with RecoveryWindowInDays.")
		case days < 7 || days > 30:
			return nil, failure("InvalidParameterException", "The RecoveryWindowInDays value must be between 7 and 30 days (inclusive).")
		}
		one.deleted = now.AddDate(0, 0, days)
		if in.ForceDeleteWithoutRecovery {
			one.deleted = now
			delete(s.secrets, one.name)
		}
		return map[string]any{"ARN": one.arn, "Name": one.name, "DeletionDate": wire.Time(one.deleted)}, nil
	})
}

func (s *Service) restoreSecret(_ context.Context, c wire.Call) (any, error) {
	in, err := wire.Decode[input](c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one, err := s.find(in.SecretID)
	if err != nil {
		return nil, err
	}
	one.deleted = time.Time{}
	return map[string]any{"ARN": one.arn, "Name": one.name}, nil
}
