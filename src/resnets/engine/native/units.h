// Units in a row, as one call forward and one backward: the kernels one after the other, without a return to Python.
//
// All units have the shape of x, and their shortcut is the identity, a gate or missing. What `branch.py` does for one unit is
// done here in the same order by the same kernels, so both give the same bytes.

#pragma once

extern "C" {

struct Layer {
    int64_t into, out, side, way;  // way: of its input, RAW, RELU or ACT (BN-ReLU)
    int64_t one_pass;              // both gradients in one pass over the maps
    double eps, momentum;          // of BN
};

// ReLU behind the BN at the end of a unit: on BN(r) or on the sum.
enum TailRelu : int64_t { NEVER = 0, FIRST = 1, LAST = 2 };
enum GateKind : int64_t { NO_GATE = 0, SHORTCUT_GATE = 1, EXCLUSIVE_GATE = 2 };
struct Unit {
    int64_t layers, adds, tail, relu;  // tail: a BN is behind the last layer, with numbers of its own
    int64_t gate, gate_relu;           // a ReLU on the sum that the gate makes
    double eps, momentum;              // of that BN
};

// The tensors of a layer are its filters, then those of its BN if it has one: gamma, beta, running mean, running variance.
// Behind those of a unit's layers and of its tail stand the filters and the bias of its gate.
struct Units {
    int64_t n, height, width, channels, threads, large, count;  // large: floats of a map that no cache holds
    const Unit* unit;
    const Layer* layer;
    const void* const* tensors;
    const float* x;
    float* const* maps;  // of each unit, what it produced, one map behind the other; the last leaves its result in y
    double* statistics;  // of every BN: the mean, the inverse of the deviation; as floats the mean, a and d
    float* y;            // of the last unit
};

}  // extern "C"

namespace {

inline size_t aligned(size_t floats) { return (floats + 15) / 16 * 16; }

// A BN of a unit with its statistics.
struct NormPlace {
    Norm norm{};
    double* exact = nullptr;
    float* rounded() const { return reinterpret_cast<float*>(exact + 2 * norm.channels); }
    const float* center() const { return rounded(); }
    const float* a() const { return rounded() + norm.channels; }
    const float* d() const { return rounded() + 2 * norm.channels; }
};

// A layer with what it reads and where its results lie.
struct LayerPlace {
    const Layer* layer;
    const float* weight;
    const float* x;
    float* y;  // of a last layer without a tail, that of the unit
    size_t gradients;  // where those of its parameters begin: filters, gamma, beta
    NormPlace bn;
    size_t filters() const { return layer->into * layer->out * layer->side * layer->side; }
};

struct GatePlace {
    const float *weight = nullptr, *bias = nullptr;
    const float* r = nullptr;
    float* z = nullptr;
    size_t gradients = 0;
};

struct UnitPlace {
    const Unit* unit;
    std::vector<LayerPlace> layers;
    const float* x;
    float* y;
    NormPlace tail;
    size_t tail_gradients;
    GatePlace gate;
    Gate gate_maps() const {
        return {unit->gate == EXCLUSIVE_GATE, unit->gate_relu, gate.z, gate.bias, x, gate.r};
    }
};

// The places of all maps and numbers, unit by unit.
std::vector<UnitPlace> find_places(const Units& u) {
    const int64_t pixels = u.n * u.height * u.width;
    const void* const* tensors = u.tensors;
    float* maps = nullptr;
    double* statistics = u.statistics;
    const Layer* layer = u.layer;
    const float* x = u.x;
    size_t gradients = 0;
    auto take_map = [&](int64_t channels) {
        float* map = maps;
        maps += aligned(pixels * channels);
        return map;
    };
    auto take_norm = [&](int64_t channels, double eps, double momentum) {
        NormPlace place;
        auto tensor = [&](int i) { return const_cast<float*>(static_cast<const float*>(tensors[i])); };
        place.norm = {channels, pixels, eps, momentum, 1.0, tensor(0), tensor(1), tensor(2), tensor(3)};
        place.exact = statistics;
        tensors += 4, statistics += 7 * channels / 2, gradients += 2 * channels;
        return place;
    };
    std::vector<UnitPlace> found;
    for (int64_t i = 0; i < u.count; i++) {
        UnitPlace place{u.unit + i, {}, x, nullptr, {}, 0, {}};
        const bool last = i + 1 == u.count, gated = place.unit->gate != NO_GATE;
        maps = u.maps[i];
        for (int64_t j = 0; j < place.unit->layers; j++, layer++) {
            LayerPlace at{layer, static_cast<const float*>(*tensors++), x, nullptr, gradients, {}};
            gradients += at.filters();
            if (layer->way == ACT) at.bn = take_norm(layer->into, layer->eps, layer->momentum);
            const bool ends = j + 1 == place.unit->layers && !place.unit->tail && !gated;
            x = at.y = ends && last ? u.y : take_map(layer->out);
            place.layers.push_back(at);
        }
        place.y = place.layers.back().y;
        if (place.unit->tail) {
            place.tail_gradients = gradients;
            place.tail = take_norm(u.channels, place.unit->eps, place.unit->momentum);
            x = place.y = last && !gated ? u.y : take_map(u.channels);
        }
        if (gated) {
            place.gate = {static_cast<const float*>(tensors[0]), static_cast<const float*>(tensors[1]), x, take_map(u.channels), gradients};
            tensors += 2, gradients += u.channels * u.channels + u.channels;
            x = place.y = last ? u.y : take_map(u.channels);
        }
        found.push_back(place);
    }
    return found;
}

Shape shape_of(const Units& u, int64_t into, int64_t out, int64_t side) {
    return {u.n, u.height, u.width, into, out, u.threads, side, 1, side / 2};
}

Sink sink_to(const Units& u, End end, float* y, int64_t channels) {
    const bool whole = channels % 16 == 0 && reinterpret_cast<uintptr_t>(y) % 64 == 0;
    Sink sink{};
    sink.end = end, sink.y = y;
    sink.large = y && u.n * u.height * u.width * channels >= u.large && whole;
    return sink;
}

void convolve(const Units& u, const Layer& l, const Source& source, const float* weight, bool backward, const Sink& sink) {
    const Shape shape = backward ? shape_of(u, l.out, l.into, l.side) : shape_of(u, l.into, l.out, l.side);
    (l.side == 1 ? conv1x1 : l.side == 3 ? conv3x3 : conv_any)(&shape, &source, weight, backward, &sink);
}

void convolve_backward(const Units& u, const Layer& l, const Source& source, const Source& gradient, const float* weight,
                       const Sink& sink, float* filters) {
    const Shape shape = shape_of(u, l.into, l.out, l.side);
    if (l.one_pass) return conv1x1_backward(&shape, &source, &gradient, weight, &sink, filters);
    (l.side == 1   ? conv1x1_filters_gradient
     : l.side == 3 ? conv3x3_filters_gradient
                   : conv_any_filters_gradient)(&shape, &source, &gradient, filters);
    convolve(u, l, gradient, weight, true, sink);
}

// What a layer reads, as it comes in.
Source activated(const LayerPlace& at) {
    Source source{at.layer->way, at.x};
    if (at.layer->way == ACT) source.a = at.bn.a(), source.c = at.bn.center(), source.d = at.bn.d();
    return source;
}

// The gradient in front of a BN, to be computed where it is read; those of gamma and beta are written. `known` holds 5 rows.
Source norm_gradient(const NormPlace& place, const double* sums, const float* g, const float* x, float* known, float* gradients) {
    const size_t channels = place.norm.channels;
    norm_backward(&place.norm, sums, place.exact, known);
    memcpy(gradients, known, 2 * channels * sizeof(float));
    return {LINEAR, g, x, known + 2 * channels, known + 3 * channels, place.center(), known + 4 * channels};
}

}  // namespace

extern "C" {

// `sums` are those of x, or none; those of y are left in `sums_of_y`, if it is there.
void units_forward(const Units* units, const double* sums, double* sums_of_y) {
    const Units& u = *units;
    int64_t widest = u.channels;
    const std::vector<UnitPlace> places = find_places(u);
    for (const UnitPlace& place : places)
        for (const LayerPlace& at : place.layers) widest = std::max(widest, at.layer->out);
    std::vector<double> own(2 * widest), other(2 * widest);
    for (const UnitPlace& place : places) {
        const Unit& unit = *place.unit;
        for (size_t i = 0; i < place.layers.size(); i++) {
            const LayerPlace& at = place.layers[i];
            if (at.layer->way == ACT) {
                if (!sums) {
                    Sink sink{};
                    sink.sums = own.data(), sums = own.data();
                    const Source source{RAW, at.x};
                    const Shape shape = shape_of(u, at.layer->into, at.layer->into, 1);
                    pass(&shape, &source, &sink);
                }
                norm_forward(&at.bn.norm, sums, at.bn.exact, at.bn.rounded());
            }
            const bool last = i + 1 == place.layers.size(), ends = last && !unit.tail && !unit.gate;
            const bool summed = last ? unit.tail || (ends && unit.adds && (&place != &places.back() || sums_of_y))
                                     : place.layers[i + 1].layer->way == ACT;
            Sink sink = sink_to(u, ends && unit.adds ? ADD : PLAIN, at.y, at.layer->out);
            sink.add = place.x;
            if (summed) sink.sums = ends && &place == &places.back() ? sums_of_y : sums == own.data() ? other.data() : own.data();
            convolve(u, *at.layer, activated(at), at.weight, false, sink);
            sums = sink.sums;
        }
        const Shape shape = shape_of(u, u.channels, u.channels, 1);
        if (unit.tail) {
            const float* r = place.layers.back().y;
            norm_forward(&place.tail.norm, sums, place.tail.exact, place.tail.rounded());
            Source source{unit.relu == FIRST ? ACT : AFFINE, r};
            source.a = place.tail.a(), source.d = place.tail.d();
            const bool adds = unit.adds && !unit.gate;
            float* y = unit.gate ? const_cast<float*>(place.gate.r) : place.y;
            Sink sink = sink_to(u, !adds ? PLAIN : unit.relu == LAST ? ADD_RELU : ADD, y, u.channels);
            sink.add = place.x;
            pass(&shape, &source, &sink);
            sums = nullptr;
        }
        if (unit.gate) {
            const Source h{RAW, place.x};
            const Sink sink = sink_to(u, PLAIN, place.gate.z, u.channels);
            conv1x1(&shape, &h, place.gate.weight, false, &sink);
            const Gate maps = place.gate_maps();
            gate_forward(&shape, &maps, place.y);
            sums = nullptr;
        }
    }
}

// From the gradient of y those of x and of all parameters. `room` has two maps of `middle` channels, then one like x for
// results if any unit has no ReLU on its sum (else they are written over what came), one for what ReLU leaves if any has it, and
// three for the gradients of z, h and r if any has a gate.
void units_backward(const Units* units, const float* grad, float* gradients, float* of_x, float* room, int64_t middle) {
    const Units& u = *units;
    const std::vector<UnitPlace> places = find_places(u);
    const int64_t pixels = u.n * u.height * u.width, most = std::max(u.channels, middle);
    const bool swaps = std::any_of(u.unit, u.unit + u.count, [](const Unit& unit) { return unit.relu != LAST; });
    const bool masks = std::any_of(u.unit, u.unit + u.count, [](const Unit& unit) { return unit.relu != NEVER; });
    float *between[2] = {room, room + aligned(pixels * middle)}, *other = between[1] + aligned(pixels * middle);
    const size_t map = aligned(pixels * u.channels);
    float* masked = swaps ? other + map : other;
    float *of_z = masks ? masked + map : masked, *of_h = of_z + map, *of_r = of_h + map;
    std::vector<double> sums(2 * most);
    std::vector<float> known(5 * most);
    const Shape whole_shape = shape_of(u, u.channels, u.channels, 1);
    const float* whole = grad;  // what goes to the shortcut
    for (size_t i = places.size(); i-- > 0;) {
        const UnitPlace& place = places[i];
        const Unit& unit = *place.unit;
        float* result = swaps && i % 2 ? other : of_x;
        Source gradient{RAW, whole};
        if (unit.gate) {
            const Gate maps = place.gate_maps();
            float* of_filters = gradients + place.gate.gradients;
            gate_backward(&whole_shape, &maps, unit.gate_relu ? place.y : whole, whole, of_z, of_h, of_r,
                          of_filters + u.channels * u.channels);
            if (maps.exclusive || maps.relu) gradient.x = of_r;
            const Source source{RAW, place.x}, back{RAW, of_z};
            conv1x1_filters_gradient(&whole_shape, &source, &back, of_filters);
            Sink sink = sink_to(u, ADD, of_h, u.channels);
            sink.add = of_h;
            conv1x1(&whole_shape, &back, place.gate.weight, true, &sink);
            whole = of_h;
        }
        if (unit.tail) {
            const float* r = place.layers.back().y;
            Sink sink = sink_to(u, unit.relu ? MASK : PLAIN, unit.relu ? masked : nullptr, u.channels);
            sink.q = r, sink.c = place.tail.center(), sink.sums = sums.data();
            if (unit.relu == FIRST) sink.m = r, sink.a = place.tail.a(), sink.d = place.tail.d();
            if (unit.relu == LAST) sink.m = place.y;
            pass(&whole_shape, &gradient, &sink);
            const float* g = unit.relu ? masked : gradient.x;
            if (unit.relu == LAST) whole = masked;
            gradient = norm_gradient(place.tail, sums.data(), g, r, known.data(), gradients + place.tail_gradients);
        }
        bool adds = unit.adds;
        for (size_t j = place.layers.size(); j-- > 0;) {
            const LayerPlace& at = place.layers[j];
            const Source source = activated(at);
            float* to = j ? between[j % 2] : result;
            Sink sink = sink_to(u, source.way == RAW ? PLAIN : MASK, to, at.layer->into);
            if (source.way != RAW) sink.m = at.x, sink.a = source.a, sink.d = source.d;
            if (source.way == ACT) sink.q = at.x, sink.c = source.c, sink.sums = sums.data();
            if (source.way == RAW && j == 0 && adds) sink.end = ADD, sink.add = whole, adds = false;
            float* of_filters = gradients + at.gradients;
            convolve_backward(u, *at.layer, source, gradient, at.weight, sink, of_filters);
            gradient = Source{RAW, to};
            if (source.way == ACT)
                gradient = norm_gradient(at.bn, sums.data(), to, at.x, known.data(), of_filters + at.filters());
        }
        if (gradient.way == LINEAR || adds) {
            Sink sink = sink_to(u, adds ? ADD : PLAIN, result, u.channels);
            sink.add = whole;
            pass(&whole_shape, &gradient, &sink);
        }
        whole = result;
    }
}

}  // extern "C"
