// All of Sluice's public C++ interface.
#pragma once

#include "sluice/cut.hpp"
#include "sluice/draw.hpp"
#include "sluice/error.hpp"
#include "sluice/execution.hpp"
#include "sluice/head.hpp"
#include "sluice/logprobs.hpp"
#include "sluice/params.hpp"
#include "sluice/profile.hpp"
#include "sluice/sampler.hpp"
#include "sluice/select.hpp"
#include "sluice/shards.hpp"
#include "sluice/status.hpp"
#include "sluice/tensor.hpp"
#include "sluice/topk.hpp"
#include "sluice/verify.hpp"
#include "sluice/version.hpp"
