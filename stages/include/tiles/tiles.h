// The whole library. In reading order: types, register_tile, shared_tile, concepts, maps, reductions,
// conversions, masks, ptx, memory_shared, memory_global, fragments_global, mma, group.
#pragma once

#include "tiles/conversions.h"
#include "tiles/fragments_global.h"
#include "tiles/group.h"
#include "tiles/maps.h"
#include "tiles/masks.h"
#include "tiles/memory_global.h"
#include "tiles/memory_shared.h"
#include "tiles/mma.h"
#include "tiles/reductions.h"
#include "tiles/register_tile.h"
#include "tiles/shared_tile.h"
