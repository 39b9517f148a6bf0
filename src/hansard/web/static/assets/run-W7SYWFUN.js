import{b as r}from"./chunk-KMTMA6KY.js";import{m18 as e}from"./core-HXAYOSVQ.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
